//! Routes of both APIs and of the console's pages, read from the code, so each new route needs a row in the matrix.

use std::{collections::BTreeSet, fs, path::Path};

/// HTTP methods by the names of functions and filters in the code.
const METHODS: [(&str, &str); 5] =
    [("get", "GET"), ("post", "POST"), ("put", "PUT"), ("delete", "DELETE"), ("patch", "PATCH")];

/// A route of the platform API with the scope that opens it, by its variant's name.
pub(crate) struct PlatformRoute {
    /// `POST /api/v1/report`
    pub(crate) route: String,
    pub(crate) scope: String,
}

/// Routes of the platform API: the array in the router of `ingest`.
pub(crate) fn of_platform() -> Vec<PlatformRoute> {
    let code = read("ingest/src/lib.rs");
    let array = code.split_once("let routes: [").expect("the array of routes").1;
    let array = array.split_once("];").expect("the end of the array").0;
    assert_eq!(code.matches(".route(").count(), 2, "routes are added elsewhere than in the array");
    let mut routes = Vec::new();
    let parts: Vec<_> = array.split("authorized_route(").collect();
    for pair in parts.windows(2) {
        let path = pair[0].rsplit('"').nth(1).expect("a path before its handler");
        let words: Vec<_> = pair[1].split(|c: char| !c.is_alphanumeric()).collect();
        let scope = words.iter().skip_while(|word| **word != "Scope").nth(2).expect("a scope");
        let method = METHODS.iter().find(|(name, _)| words.contains(name)).expect("a method").1;
        routes.push(PlatformRoute { route: format!("{method} {path}"), scope: (*scope).to_owned() });
    }
    routes
}

/// Routes of the admin API: all `.route(` calls of its files.
pub(crate) fn of_admin() -> BTreeSet<String> {
    of_folders(&["console/src/admin"])
}

/// Routes of the console's pages and of its sign-in.
pub(crate) fn of_pages() -> BTreeSet<String> {
    of_folders(&["console/src/pages", "console/src/signin"])
}

fn of_folders(folders: &[&str]) -> BTreeSet<String> {
    let mut routes = BTreeSet::new();
    for folder in folders {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut routes);
    }
    routes
}

fn collect(folder: &Path, routes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, routes);
        } else {
            routes.extend(routes_in(&fs::read_to_string(&path).unwrap()));
        }
    }
}

fn routes_in(code: &str) -> Vec<String> {
    let mut routes = Vec::new();
    for call in code.split(".route(").skip(1) {
        let path = call.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let (path, rest) = path.expect("a route of the admin API is a literal, so that it can be found");
        let mut open = 1;
        let end = rest.find(|c| {
            open += i32::from(c == '(') - i32::from(c == ')');
            open == 0
        });
        let handlers = &rest[..end.expect("a closed call")];
        let before = routes.len();
        for (name, method) in METHODS {
            let is_call =
                |(at, _): (usize, &str)| !handlers[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if handlers.match_indices(&format!("{name}(")).any(is_call) {
                routes.push(format!("{method} {path}"));
            }
        }
        assert!(routes.len() > before, "no method of {path} is found in `{handlers}`");
    }
    routes
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn each_method_of_a_route_is_found() {
    let code = r#"
        Router::new()
            .route("/keys", get(list).post(create))
            .route(
                "/keys/{id}",
                axum::routing::delete(target),
            )
    "#;
    assert_eq!(routes_in(code), ["GET /keys", "POST /keys", "DELETE /keys/{id}"]);
}
