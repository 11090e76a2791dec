//! Two organisations: the keys of one neither see nor change data of the other, on any route of either API.

pub(crate) mod routes;
pub(crate) mod rows;
pub(crate) mod setup;

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::Value;
use tidegate_catalog::Scope;
use tidegate_test_support::{PATIENCE, eventually_ok};

use self::{
    rows::{ADMIN, PAGES, PLATFORM, Row},
    setup::{SEALED, TwoOrgs, stable, two_orgs},
};
use crate::support::{
    Answer, Place,
    browser::{Browser, Page},
    operator,
};

const PLATFORM_PREFIX: &str = "/api/v1";

/// Names of values that are no ids, or that are too short for a search in an answer.
const NO_IDS: [&str; 7] = ["since", "until", "hash", "jobs", "deliveries", "fetched", "letter"];
/// Names of values that are the same in both requests.
const COMMON: [&str; 5] = ["since", "until", "hash", "jobs", "deliveries"];

pub(crate) type Ids = BTreeMap<&'static str, String>;

impl TwoOrgs {
    /// Sends a request to the API of the row with a key or the operator's token.
    async fn send(&self, row: &Row, key: &str, path: &str, body: &str) -> Answer {
        let (method, template) = row.route.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        let body = (!body.is_empty()).then(|| serde_json::from_str::<Value>(body).unwrap());
        if template.starts_with(PLATFORM_PREFIX) {
            return self
                .demo
                .platform_as(key, method, &format!("{PLATFORM_PREFIX}{path}"), body.as_ref())
                .await;
        }
        self.demo.admin_as(key, method, path, body.as_ref()).await
    }

    /// Ids of the same form that do not exist.
    fn unknown_ids(&self) -> Ids {
        self.ids
            .iter()
            .map(|(name, id)| (*name, if COMMON.contains(name) { id.clone() } else { change_last_digit(id) }))
            .collect()
    }

    /// Reads all data that the first organisation can read.
    async fn snapshot(&self) -> BTreeMap<String, (u16, String)> {
        let mut all = BTreeMap::new();
        for row in ADMIN.iter().chain(PLATFORM).filter(|row| row.route.starts_with("GET")) {
            // Lists of the installation belong to no organisation, and no key opens them.
            for (_, path, _) in row.requests.iter().filter(|(status, _, _)| *status != 403) {
                let (path, _) = fill_ids(path, &self.ids);
                let is_platform = row.route.contains(PLATFORM_PREFIX);
                let key = if is_platform { self.demo.var("TIDEGATE_API_KEY") } else { &self.operator };
                let mut answer = self.send(row, key, &path, "").await;
                assert_eq!(answer.0, 200, "{} {path}: {}", row.route, answer.1);
                if row.route == "GET /audit" {
                    // Views of child-safety jobs are audited, including the views of this function.
                    answer.1["items"]
                        .as_array_mut()
                        .unwrap()
                        .retain(|entry| !entry["action"].as_str().unwrap().starts_with("GET "));
                }
                all.insert(format!("{} {path}", row.route), stable(answer, &Ids::new()));
            }
        }
        all
    }

    /// Waits until all requests of the stranger have taken effect.
    async fn consumed(&self) {
        eventually_ok("all records to be consumed and counted", PATIENCE, async || {
            let rule_stats = self.demo.admin_as(&self.stranger, Method::GET, "/rules/stats", None).await.1;
            if rule_stats["items"] == serde_json::json!([]) {
                anyhow::bail!("the rule of the stranger's items is not counted");
            }
            let metrics = self.demo.operations("/metrics").await.1;
            let lag = metrics.lines().filter(|line| line.starts_with("tidegate_consumer_lag_records"));
            let lag: f64 = lag.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
            if lag > 0.0 { anyhow::bail!("{lag} records are left") } else { Ok(()) }
        })
        .await
        .unwrap();
    }
}

/// Returns the id with another last digit.
fn change_last_digit(id: &str) -> String {
    let last = if id.ends_with('0') { '1' } else { '0' };
    let mut id = id.to_owned();
    id.pop();
    id.push(last);
    id
}

/// Replaces the placeholders of a text with ids. Returns the text and the ids used.
pub(crate) fn fill_ids(text: &str, ids: &Ids) -> (String, Ids) {
    let (mut text, mut used_ids) = (text.to_owned(), Ids::new());
    for (name, id) in ids {
        let place = format!("<{name}>");
        if text.contains(&place) {
            text = text.replace(&place, id);
            used_ids.insert(name, id.clone());
        }
    }
    (text, used_ids)
}

#[test]
fn each_route_has_a_row_in_the_matrix() {
    let of = |rows: &[Row]| rows.iter().map(|row| row.route.to_owned()).collect::<BTreeSet<_>>();
    let platform: BTreeSet<_> = routes::of_platform().into_iter().map(|it| it.route).collect();
    for (code, rows) in
        [(routes::of_admin(), of(ADMIN)), (platform, of(PLATFORM)), (routes::of_pages(), of(PAGES))]
    {
        let routes_without_row: Vec<_> = code.difference(&rows).collect();
        assert!(
            routes_without_row.is_empty(),
            "routes without a row in tests/it/two_orgs/rows.rs: {routes_without_row:?}"
        );
        let rows_without_route: Vec<_> = rows.difference(&code).collect();
        assert!(rows_without_route.is_empty(), "rows without a route: {rows_without_route:?}");
    }
}

#[tokio::test]
async fn keys_of_one_org_reach_nothing_of_another() {
    let place = Place::new();
    let orgs = two_orgs(&place).await;
    let missing_ids = orgs.unknown_ids();
    let before = orgs.snapshot().await;
    for row in ADMIN.iter().chain(PLATFORM) {
        for (status, path, body) in row.requests {
            let mut answers = Vec::new();
            for ids in [&orgs.ids, &missing_ids] {
                let ((path, in_path), (body, in_body)) = (fill_ids(path, ids), fill_ids(body, ids));
                let answer = orgs.send(row, &orgs.stranger, &path, &body).await;
                assert_eq!(answer.0, *status, "{} {path}: {}", row.route, answer.1);
                let used_ids: Ids = in_path.into_iter().chain(in_body).collect();
                let answer = stable(answer, &used_ids);
                let checked_ids = orgs.ids.iter().filter(|(name, _)| !NO_IDS.contains(name));
                let leaked_ids: Vec<_> =
                    checked_ids.filter(|(_, id)| answer.1.contains(id.as_str())).collect();
                assert!(leaked_ids.is_empty(), "{} {path} shows {leaked_ids:?}: {}", row.route, answer.1);
                assert!(!answer.1.contains(SEALED), "{} {path}: {}", row.route, answer.1);
                answers.push(answer);
                if used_ids.is_empty() {
                    break;
                }
            }
            answers.dedup();
            assert_eq!(answers.len(), 1, "{} {path} tells which ids exist: {answers:?}", row.route);
        }
    }
    orgs.consumed().await;
    for (request, after) in orgs.snapshot().await {
        assert_eq!(before[&request], after, "{request} has changed");
    }
    // The ids are valid for the organisation that owns them.
    for row in ADMIN {
        for (_, path, body) in row.requests.iter().filter(|(status, _, _)| *status == 404) {
            let ((path, _), (body, _)) = (fill_ids(path, &orgs.ids), fill_ids(body, &orgs.ids));
            let (status, answer) = orgs.send(row, &orgs.operator, &path, &body).await;
            assert_ne!(status, 404, "{} {path}: {answer}", row.route);
        }
    }
}

#[tokio::test]
async fn operator_names_the_org_on_each_route_that_reads() {
    let place = Place::new();
    let orgs = two_orgs(&place).await;
    for row in ADMIN.iter().filter(|row| row.route.starts_with("GET")) {
        for (_, path, _) in row.requests {
            let (path, _) = fill_ids(path, &orgs.ids);
            let path = format!("{path}{}org=default", if path.contains('?') { '&' } else { '?' });
            let (status, answer) = orgs.send(row, &orgs.operator, &path, "").await;
            assert_eq!(status, 200, "{} {path}: {answer}", row.route);
        }
    }
}

/// Requests a page, or sends its form with the session's token.
async fn visit(browser: &mut Browser, route: &str, path: &str, form: &str, token: &str) -> Page {
    if route.starts_with("GET") {
        return browser.get(path).await;
    }
    let form = format!("form_token={token}&{form}");
    browser.request(Method::POST, path, Some(form), &[]).await
}

#[tokio::test]
async fn pages_of_one_org_show_nothing_of_another() {
    let place = Place::new();
    let orgs = two_orgs(&place).await;
    let missing_ids = orgs.unknown_ids();
    let before = orgs.snapshot().await;
    let mut stranger = Browser::signed_in(&orgs.demo, &orgs.stranger).await;
    let mut owner = Browser::signed_in(&orgs.demo, orgs.demo.var("TIDEGATE_ADMIN_KEY")).await;
    let token = stranger.get("/settings/keys/new").await.hidden_fields("/settings/keys")[0].1.clone();
    for row in PAGES {
        for (status, path, form) in row.requests {
            let mut answers = Vec::new();
            for ids in [&orgs.ids, &missing_ids] {
                let (path, used_ids) = fill_ids(path, ids);
                let page = visit(&mut stranger, row.route, &path, form, &token).await;
                assert_eq!(page.status, *status, "{} {path}: {}", row.route, page.body);
                let mut body = page.body;
                for (name, id) in &used_ids {
                    body = body.replace(id.as_str(), &format!("<{name}>"));
                }
                let checked_ids = orgs.ids.iter().filter(|(name, _)| !NO_IDS.contains(name));
                // Both have the queues and rules of the demo, and policies of its keys.
                let leaked_ids: Vec<_> = checked_ids.filter(|(_, id)| body.contains(id.as_str())).collect();
                assert!(leaked_ids.is_empty(), "{} {path} shows {leaked_ids:?}: {body}", row.route);
                assert!(!body.contains(SEALED), "{} {path}: {body}", row.route);
                answers.push(body);
                if used_ids.is_empty() {
                    break;
                }
            }
            answers.dedup();
            // A page of an error names the request.
            assert_eq!(answers.len(), 1, "{} {path} tells which ids exist: {answers:?}", row.route);
            if *status == 404 && row.route.starts_with("GET") && !path.contains("<safety>") {
                let (path, _) = fill_ids(path, &orgs.ids);
                assert_eq!(owner.get(&path).await.status, 200, "{path}");
            }
        }
    }
    for (request, after) in orgs.snapshot().await {
        // The sign-in of the owner is an audit entry of that organisation.
        if request != "GET /audit /audit" {
            assert_eq!(before[&request], after, "{request} has changed");
        }
    }
}

#[tokio::test]
async fn each_page_asks_for_a_session() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for route in routes::of_pages() {
        let (_, template) = route.split_once(' ').unwrap();
        let path = template.replace(['{', '}'], "");
        if ["/sign-in", "/style.css"].contains(&template) {
            continue;
        }
        let page = visit(&mut Browser::new(&demo), &route, &path, "", "").await;
        assert_eq!(page.status, 303, "{route}: {}", page.body);
        assert!(page.location().starts_with("/sign-in") && page.body.is_empty(), "{route}: {}", page.body);
    }
}

#[tokio::test]
async fn each_route_asks_for_a_key_and_its_scope() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let operator = operator(&place);
    let key_without = async |left_out: &[Scope]| {
        let scopes: Vec<_> =
            Scope::ALL.into_iter().filter(|scope| !left_out.contains(scope)).map(Scope::name).collect();
        let body = serde_json::json!({ "name": "almost", "scopes": scopes });
        let (status, created_key) = demo.admin_as(&operator, Method::POST, "/keys", Some(&body)).await;
        assert_eq!(status, 201, "{created_key}");
        created_key["key"].as_str().unwrap().to_owned()
    };
    let no_admin = key_without(&[Scope::Admin, Scope::Review, Scope::ExportsRead]).await;
    for route in routes::of_admin() {
        let (method, template) = route.split_once(' ').unwrap();
        let (method, path): (Method, _) = (method.parse().unwrap(), template.replace(['{', '}'], ""));
        for (key, path, status) in [
            ("", path.clone(), 401),
            (&*no_admin, path.clone(), 403),
            (demo.var("TIDEGATE_ADMIN_KEY"), format!("{path}?org=other"), 403),
        ] {
            let answer = demo.admin_as(key, method.clone(), &path, None).await;
            assert_eq!(answer.0, status, "{route}: {}", answer.1);
        }
    }
    for routes::PlatformRoute { route, scope } in routes::of_platform() {
        let (method, template) = route.split_once(' ').unwrap();
        let (method, path): (Method, _) = (method.parse().unwrap(), template.replace(['{', '}'], ""));
        let scope = Scope::ALL.into_iter().find(|known| format!("{known:?}") == scope);
        let unscoped_key = key_without(&[scope.expect("a scope that exists")]).await;
        for (key, status) in [("", 401), (&*unscoped_key, 403)] {
            let answer = demo.platform_as(key, method.clone(), &path, None).await;
            assert_eq!(answer.0, status, "{route}: {}", answer.1);
        }
    }
}

#[tokio::test]
async fn scope_review_opens_the_routes_of_moderators_only() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let body = serde_json::json!({ "name": "moderator", "scopes": ["review"] });
    let (status, created_key) = demo.command("/keys", &body).await;
    assert_eq!(status, 201, "{created_key}");
    let key = created_key["key"].as_str().unwrap();
    for row in ADMIN {
        let (method, template) = row.route.split_once(' ').unwrap();
        let (method, path): (Method, _) = (method.parse().unwrap(), template.replace(['{', '}'], ""));
        let (status, answer) = demo.admin_as(key, method, &path, None).await;
        assert_ne!(status, 401, "{}: {answer}", row.route);
        assert_eq!(status != 403, row.is_for_reviewers, "{}: {status} {answer}", row.route);
        if !row.is_for_reviewers {
            let scope = if row.route.starts_with("GET /exports") { "exports:read" } else { "admin" };
            let detail = format!("The key lacks the scope `{scope}`.");
            assert_eq!(answer["detail"], detail, "{}", row.route);
        }
    }
    let mut browser = Browser::signed_in(&demo, key).await;
    let token = browser.get("/queues").await.hidden_fields("/sign-out")[0].1.clone();
    for row in PAGES.iter().filter(|row| !row.route.ends_with("/sign-out")) {
        let path = row.route.split_once(' ').unwrap().1.replace(['{', '}'], "");
        let page = visit(&mut browser, row.route, &path, "", &token).await;
        assert_eq!(page.status != 403, row.is_for_reviewers, "{}: {} {}", row.route, page.status, page.body);
        assert!(!page.body.contains("href=\"/settings/"), "{}: {}", row.route, page.body);
    }
}
