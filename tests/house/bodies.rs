//! Names of the request and response bodies of the admin API, read from the signatures of its handlers.

use std::{fs, path::Path};

/// Extractors and responses of handlers, with the ending of the types that they carry.
const CARRIERS: [(&str, &str); 2] = [("Body<", "Request"), ("Json<", "Response")];

/// Returns the bodies that the code names, each with the ending that its name needs.
fn list_bodies(code: &str) -> Vec<(String, &'static str)> {
    let code = code.split("#[cfg(test)]").next().unwrap_or(code);
    let lines = code.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut bodies = Vec::new();
    for (carrier, ending) in CARRIERS {
        for (start, _) in code.match_indices(carrier) {
            let is_other_name = code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let body = &code[start + carrier.len()..];
            // A page of a list is named by its entries.
            let body = body.strip_prefix("ListResponse<").unwrap_or(body);
            let path = &body[..body.find(['<', '>', ',', '(']).unwrap_or(body.len())];
            let name = path.rsplit("::").next().unwrap_or(path).trim();
            // A parameter of a generic type or function stands for any body.
            if !is_other_name && name.len() > 1 {
                bodies.push((name.to_owned(), ending));
            }
        }
    }
    bodies
}

fn read_sources(folder: &Path, sources: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else {
            sources.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn bodies_of_the_admin_api_end_in_request_or_response() {
    let mut sources = Vec::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("console/src/admin"), &mut sources);
    let mut count = 0;
    let mut misnamed = Vec::new();
    for (path, code) in &sources {
        let bodies = list_bodies(code);
        count += bodies.len();
        misnamed.extend(
            bodies
                .into_iter()
                .filter(|(name, ending)| !name.ends_with(ending))
                .map(|(name, ending)| format!("{path}: {name} does not end in {ending}")),
        );
    }
    assert!(count > 60, "{count} bodies were read");
    assert!(misnamed.is_empty(), "{misnamed:#?}");
}

#[test]
fn bodies_are_read_from_signatures() {
    let code = "
        async fn list(
            Body(request): Body<ListRequest>, // Body<Comment>
        ) -> Result<(StatusCode, Json<ListResponse<stored::ItemView>>), Problem> {
            Ok(Json(ListResponse { items, next: None }))
        }
        struct JsonBody<Other>(Other);
        impl<T> FromRequest<Api> for Body<T> {}
        fn make() -> Json<Value>;
        #[cfg(test)]
        mod tests { fn make() -> Json<Test>; }
    ";
    let expected_bodies = [("ListRequest", "Request"), ("ItemView", "Response"), ("Value", "Response")];
    assert_eq!(list_bodies(code), expected_bodies.map(|(name, ending)| (name.to_owned(), ending)));
}
