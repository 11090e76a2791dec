//! Test service in a temporary folder, with helpers for requests and its log.

use std::sync::{Arc, Once};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode, header},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_catalog::{
    Change, Changes, Keys, LiveConfigs, MasterKey, Scope, Scopes, Secrets, Security,
    keys::{CreatedKey, NewKey},
    orgs,
};
use tidegate_ingest::{Deps, Settings, router};
use tidegate_schemas::{
    ids::{ConfigVersion, Millis, OrgId},
    records::{self, Appeal, Decision, Items, Report},
};
use tidegate_store::Store;
use tidegate_stream::{
    Log, Topic,
    page_reader::{Order, Query},
    record::PageRecord,
};
use tidegate_test_support::openapi::contract;
use tidegate_web::HttpServer;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) const DOCUMENTS: &str = "\
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: title, type: STRING}
  - {name: author, type: RELATED_ITEM, role: creator}
  - {name: images, type: IMAGE, container: ARRAY}
  - {name: createdAt, type: DATETIME, role: createdAt}
  - {name: likes, type: NUMBER}
---
item_type: versioned
kind: CONTENT
version: '2026-01'
earlier_versions: ['2025-07']
fields:
  - {name: text, type: STRING}
---
item_type: user
kind: USER
---
policy: safety
---
policy: scam
name: Scams
parent: safety
---
action: limit_reach
kind: callback
";

pub(crate) struct Service {
    pub(crate) router: Router,
    pub(crate) deps: Deps,
    pub(crate) org: OrgId,
    pub(crate) key: String,
    pub(crate) stop: CancellationToken,
    changes: Changes,
    _folder: TempDir,
}

pub(crate) async fn service() -> Service {
    Service::with(|_, _, _| {}).await
}

impl Service {
    pub(crate) async fn with(
        set: impl FnOnce(&mut Settings, &mut tidegate_web::Settings, &mut tidegate_stream::settings::Settings),
    ) -> Self {
        // The first test that reaches a span decides for all threads whether the span is enabled. A global subscriber
        // enables it for all tests.
        static LISTENER: Once = Once::new();
        LISTENER
            .call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap());
        let (mut settings, mut http) = (Settings::default(), tidegate_web::Settings::default());
        let mut stream = tidegate_stream::settings::Settings {
            partitions: Some(4),
            ..tidegate_stream::settings::Settings::default()
        };
        set(&mut settings, &mut http, &mut stream);
        let folder = tempfile::tempdir().unwrap();
        let database = fjall::Database::builder(folder.path().join("db")).open().unwrap();
        let store = Store::open_embedded(&database, tidegate_store::embedded::Settings::default()).unwrap();
        let log = Log::open_embedded(database, &stream).unwrap();
        let catalog = tidegate_catalog::Settings::default();
        let org = OrgId::new("org");
        orgs::create(&store, &org, "Org", Millis(1)).await.unwrap();
        let master = MasterKey::load(&Security::default(), Some(folder.path())).unwrap();
        let changes = Changes::new(store.clone(), Secrets::new(store.clone(), master, &catalog), &catalog);
        apply(&changes, &org, DOCUMENTS).await;
        let keys = Keys::new(store.clone(), &catalog);
        let key = make_key(&keys, &org, Scopes::platform()).await.token.reveal();
        let live = Arc::new(LiveConfigs::open(store.clone(), catalog).await.unwrap());
        let deps = Deps { log, store, live, keys };
        let stop = CancellationToken::new();
        let http = HttpServer::new("api", http).unwrap();
        let router = router(deps.clone(), &settings, &http, stop.clone()).unwrap();
        Self { router, deps, org, key, stop, changes, _folder: folder }
    }

    /// Changes the configuration. The loaded configuration does not follow automatically in tests.
    pub(crate) async fn apply(&self, yaml: &str) -> ConfigVersion {
        apply(&self.changes, &self.org, yaml).await
    }

    pub(crate) async fn key_with(&self, scopes: &[Scope]) -> CreatedKey {
        make_key(&self.deps.keys, &self.org, scopes.iter().copied().collect()).await
    }

    /// Creates another organisation with the same configuration and returns its key.
    pub(crate) async fn other_org(&self) -> String {
        let other_org = OrgId::new("other");
        orgs::create(&self.deps.store, &other_org, "Other", Millis(1)).await.unwrap();
        apply(&self.changes, &other_org, DOCUMENTS).await;
        let new_key =
            NewKey { org: other_org, name: "tests".to_owned(), scopes: Scopes::platform(), expires_at: None };
        self.deps.keys.create(new_key).await.unwrap().token.reveal()
    }

    /// Sends a request and validates the response against the published description.
    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let answer = Answer::of(self.router.clone().oneshot(request).await.unwrap()).await;
        contract().check_answer(&method, &path, answer.status.as_u16(), &answer.body).unwrap();
        answer
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", &self.key)
            .header(header::CONTENT_TYPE, "application/json")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(self.request("GET", path).body(Body::empty()).unwrap()).await
    }

    /// Posts a body. Checks that the published description accepts exactly the shapes that the service accepts.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let answer = self.post_text(path, body.to_string()).await;
        let described = contract().check_request("POST", path, body);
        if answer.status.is_success() {
            described
                .unwrap_or_else(|error| panic!("{path} takes {body}, but its description does not: {error}"));
        } else if answer.is_misshapen() {
            assert!(described.is_err(), "{path} refuses the shape of {body}, but its description does not");
        }
        answer
    }

    pub(crate) async fn post_text(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.ask(self.request("POST", path).body(body.into()).unwrap()).await
    }

    pub(crate) async fn post_keyed(&self, path: &str, key: &str, body: &Value) -> Answer {
        let request = self.request("POST", path).header("idempotency-key", key);
        self.ask(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn submit(&self, items: Value) -> Answer {
        self.post(ITEMS, &json!({ "items": items })).await
    }

    /// Returns all records of a topic in append order.
    async fn tail(&self, topic: Topic) -> Vec<PageRecord> {
        let query = Query { topic, order: Order::Oldest, limit: 10_000, after: None };
        self.deps.log.read_page(query).await.unwrap().records
    }

    async fn records<R: records::Record>(&self, topic: Topic) -> Vec<R> {
        self.tail(topic).await.iter().map(|record| record.decode().unwrap()).collect()
    }

    pub(crate) async fn items(&self) -> Vec<Items> {
        self.records(Topic::Items).await
    }

    pub(crate) async fn reports(&self) -> Vec<Report> {
        self.records(Topic::Reports).await
    }

    pub(crate) async fn appeals(&self) -> Vec<Appeal> {
        self.records(Topic::Appeals).await
    }

    pub(crate) async fn decisions(&self) -> Vec<Decision> {
        self.records(Topic::Decisions).await
    }

    /// Counts the records appended by requests.
    pub(crate) async fn count_appended(&self) -> usize {
        let mut count = 0;
        for topic in [Topic::Items, Topic::Reports, Topic::Appeals, Topic::Decisions] {
            count += self.tail(topic).await.len();
        }
        count
    }

    pub(crate) async fn assert_nothing_appended(&self) {
        for topic in [Topic::Items, Topic::ItemsSlow, Topic::Reports, Topic::Appeals] {
            assert_eq!(self.tail(topic).await.len(), 0, "{topic:?}");
        }
    }
}

async fn apply(changes: &Changes, org: &OrgId, yaml: &str) -> ConfigVersion {
    let change = Change {
        files: vec![("all.yaml".to_owned(), yaml.to_owned())],
        author: "tests".to_owned(),
        expected_version: None,
        prune: false,
    };
    changes.apply(org, change).await.unwrap().version
}

pub(crate) async fn make_key(keys: &Keys, org: &OrgId, scopes: Scopes) -> CreatedKey {
    let new_key = NewKey { org: org.clone(), name: "tests".to_owned(), scopes, expires_at: None };
    keys.create(new_key).await.unwrap()
}

pub(crate) const ITEMS: &str = "/api/v1/items/async/";
pub(crate) const REPORT: &str = "/api/v1/report";
pub(crate) const APPEAL: &str = "/api/v1/report/appeal";
pub(crate) const POLICIES: &str = "/api/v1/policies/";

pub(crate) fn post(id: &str) -> Value {
    json!({"id": id, "typeId": "post", "data": {"text": "hello"}})
}

pub(crate) fn report() -> Value {
    json!({
        "reporter": {"kind": "user", "id": "u-1", "typeId": "user"},
        "reportedAt": "2026-01-02T03:04:05.006Z",
        "reportedItem": post("p-1"),
    })
}

pub(crate) fn appeal(id: &str) -> Value {
    json!({
        "appealId": id,
        "appealedBy": {"id": "u-1", "typeId": "user"},
        "appealedAt": "2026-01-02T03:04:05.006Z",
        "actionedItem": post("p-1"),
        "actionsTaken": ["limit_reach"],
    })
}

/// Complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns all values of a header.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// Returns the pointers of all faults. Checks that the response is a complete envelope.
    pub(crate) fn faults(&self) -> Vec<&str> {
        self.assert_envelope();
        let errors = self.body["errors"].as_array().unwrap();
        errors.iter().map(|error| error["pointer"].as_str().unwrap_or("")).collect()
    }

    /// True if the shape is refused for a reason other than a limit; limits are not part of the schema.
    fn is_misshapen(&self) -> bool {
        let errors = self.body["errors"].as_array().into_iter().flatten();
        let mut of_shape = errors.filter(|error| error["title"] == "Request body failed schema validation.");
        of_shape.any(|error| !error["detail"].as_str().unwrap_or_default().contains("at most"))
    }

    pub(crate) fn detail(&self) -> &str {
        self.body["errors"][0]["detail"].as_str().unwrap_or("")
    }

    pub(crate) fn assert_envelope(&self) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!(self.body["type"], "about:blank");
        assert_eq!(self.body["status"], self.status.as_u16());
        for text in [&self.body["title"], &self.body["detail"], &self.body["instance"]] {
            assert!(text.is_string(), "{self:?}");
        }
        let request_id = self.header("x-request-id");
        assert!(!request_id.is_empty());
        let errors = self.body["errors"].as_array().unwrap();
        assert!((1..=100).contains(&errors.len()), "{self:?}");
        for error in errors {
            assert!(error["status"].is_u64() && error["title"].is_string(), "{error}");
            assert!(error["type"][0].as_str().unwrap().starts_with("/errors/"), "{error}");
            assert_eq!(error["requestId"], request_id);
        }
    }
}
