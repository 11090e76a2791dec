//! Models score items: called only if a rule depends on it, once for equal inputs, without delaying other items.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tidegate_moderation::reevaluation::stored_evaluation::{self, Archive};
use tidegate_processors::Settings;
use tidegate_schemas::records::JobClass;
use tidegate_store::tables::{
    items::items::{Item, SubmissionState},
    review::jobs::{Job, SubjectJob},
};
use tidegate_stream::Topic;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{
    media::{long_wait_settings, short_wait_settings},
    reviews::report,
    world::{World, entry, org, post},
};

/// Model server that answers by path and records its requests.
struct Model {
    port: u16,
    asked: Arc<Mutex<HashMap<String, Vec<Value>>>>,
    /// Calls of `/held` wait for one of these.
    go: Arc<Semaphore>,
}

impl Model {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, go) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let (all, gate) = (Arc::clone(&asked), Arc::clone(&go));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&all), Arc::clone(&gate)));
            }
        });
        Self { port, asked, go }
    }

    fn recorded_requests(&self, path: &str) -> Vec<Value> {
        self.asked.lock().unwrap().get(path).cloned().unwrap_or_default()
    }

    /// Builds the documents of one signal per path.
    fn signals(&self, paths: &[&str], rest: &str) -> String {
        let signal = |path: &&str| {
            let port = self.port;
            let (key, url) = (&path[1..], format!("http://127.0.0.1:{port}{path}"));
            format!("signal: {key}\nurl: {url}\ninput: text\noutput: {{score: /score}}\n{rest}\n---\n")
        };
        paths.iter().map(signal).collect()
    }
}

async fn serve(mut socket: TcpStream, recorded: Arc<Mutex<HashMap<String, Vec<Value>>>>, go: Arc<Semaphore>) {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length: usize =
                length.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                break (head.to_owned(), body.to_owned());
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let nth = {
        let mut recorded = recorded.lock().unwrap();
        let recorded = recorded.entry(path.clone()).or_default();
        recorded.push(serde_json::from_str(&body).unwrap());
        recorded.len()
    };
    let body: Value = serde_json::from_str(&body).unwrap();
    let (status, answer) = match path.as_str() {
        "/hang" => return std::future::pending().await,
        "/held" => {
            go.acquire().await.unwrap().forget();
            ("200 OK", r#"{"score":0.9}"#.to_owned())
        }
        "/error" => ("500 Internal Server Error", r#"{"score":1}"#.to_owned()),
        "/busy" => ("429 Too Many Requests", String::new()),
        "/once-busy" if nth == 1 => ("429 Too Many Requests\r\nRetry-After: 0", String::new()),
        "/busy-for-long" => ("503 Service Unavailable\r\nRetry-After: 600", String::new()),
        "/moved" => ("302 Found", String::new()),
        "/html" => ("200 OK", "<html>try again</html>".to_owned()),
        "/nan" => ("200 OK", r#"{"score":NaN}"#.to_owned()),
        "/shape" => ("200 OK", r#"{"scores":[1]}"#.to_owned()),
        "/text" => ("200 OK", r#"{"score":"1"}"#.to_owned()),
        "/huge" => ("200 OK", format!("{{\"score\":1,\"x\":\"{}\"}}", "x".repeat(50 << 20))),
        "/slow" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{\"score\":1,";
            let _gone = socket.write_all(head.as_bytes()).await;
            while socket.write_all(b" ").await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            return;
        }
        "/batch" => {
            let mean = |input: &Value| json!({"score": if input == "mean" { 0.9 } else { 0.1 }});
            let inputs = body["input"].as_array().unwrap();
            ("200 OK", json!(inputs.iter().map(mean).collect::<Vec<_>>()).to_string())
        }
        "/speech" => ("200 OK", r#"{"text":"Buy SCAM coins now","score":0.2}"#.to_owned()),
        "/low" => ("200 OK", r#"{"score":0.1}"#.to_owned()),
        _ => ("200 OK", r#"{"score":0.9}"#.to_owned()),
    };
    let length = answer.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _gone = socket.write_all(format!("{head}{answer}").as_bytes()).await;
}

async fn world(settings: Settings, documents: &str) -> World {
    let mut world = World::with_media_ports(settings, &[]).await;
    world.configure(documents.trim_end_matches("---\n"), false).await;
    world.start();
    world
}

fn rule(name: &str, condition: &str) -> String {
    format!("rule: {name}\nstatus: live\nitem_types: [post]\nwhen: {condition}\nactions: [ban]\n---\n")
}

fn parse_list(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap()
}

fn matched_rules(row: &Item) -> Vec<String> {
    parse_list(&row.matched).iter().map(|it| it["rule"].as_str().unwrap().to_owned()).collect()
}

fn errored_rules(row: &Item) -> Vec<(String, String)> {
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    let mut reasons: Vec<_> =
        parse_list(&row.errored).iter().map(|it| (text(it, "rule"), text(it, "reason"))).collect();
    reasons.sort();
    reasons
}

#[tokio::test(flavor = "multi_thread")]
async fn model_is_called_once_and_only_for_dependent_rules() {
    let model = Model::start().await;
    let condition = "{all: [{score: {model: toxic, gte: 0.8}}, {text: {in: [text], words: [maybe]}}]}";
    let documents = model.signals(&["/toxic"], "") + &rule("toxic", condition);
    let mut world = world(long_wait_settings(), &documents).await;
    let no = world.submit_text("no", "certainly fine").await;
    assert_eq!(matched_rules(&world.wait_until_evaluated(&post("no"), no).await), [""; 0]);
    assert!(model.recorded_requests("/toxic").is_empty());
    for id in ["one", "two"] {
        let submission = world.submit_text(id, "maybe bad").await;
        let row = world.wait_until_evaluated(&post(id), submission).await;
        assert_eq!(matched_rules(&row), ["toxic"]);
        assert!(row.matched.contains("0.9"), "{}", row.matched);
    }
    assert_eq!(model.recorded_requests("/toxic"), [json!({"input": "maybe bad"})]);
    // An explanation shows the stored score without a call.
    let row = world.versions(&post("two")).await.remove(0);
    let config = world.deps.live.org(&org()).unwrap();
    let (store, org, uncounted) = (&world.deps.store, org(), std::collections::BTreeSet::new());
    let archive = Archive { store, org: &org, uncounted: &uncounted, window_rows: 9 };
    let explanation =
        stored_evaluation::explain(archive, config, &row, &"toxic".into()).await.unwrap().unwrap();
    assert!(!explanation.is_guessed && serde_json::to_string(&explanation.tree).unwrap().contains("0.9"));
    assert_eq!(model.recorded_requests("/toxic").len(), 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cheapest_model_is_called_first() {
    let model = Model::start().await;
    let both = |cheap: &str| {
        format!("{{all: [{{score: {{model: dear, gte: 0.5}}}}, {{score: {{model: {cheap}, gte: 0.5}}}}]}}")
    };
    let documents = model.signals(&["/low", "/fair"], "cost: 1")
        + &model.signals(&["/dear"], "cost: 9")
        + &rule("stops", &both("low"));
    let mut world = world(long_wait_settings(), &documents).await;
    let first = world.submit_text("a", "one").await;
    let row = world.wait_until_evaluated(&post("a"), first).await;
    assert_eq!((matched_rules(&row), errored_rules(&row)), (vec![], vec![]));
    assert_eq!((model.recorded_requests("/low").len(), model.recorded_requests("/dear").len()), (1, 0));
    world.configure(rule("goes-on", &both("fair")).trim_end_matches("---\n"), false).await;
    let second = world.submit_text("b", "two").await;
    assert_eq!(matched_rules(&world.wait_until_evaluated(&post("b"), second).await), ["goes-on"]);
    assert_eq!((model.recorded_requests("/low").len(), model.recorded_requests("/dear").len()), (2, 1));
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_model_answers_leave_rules_errored_with_a_reason() {
    let model = Model::start().await;
    let paths =
        ["/hang", "/error", "/busy", "/moved", "/html", "/nan", "/shape", "/text", "/huge", "/slow", "/good"];
    let mut documents = model.signals(&paths, "timeout: 1s");
    for path in paths {
        documents += &rule(&path[1..], &format!("{{score: {{model: {}, gte: 0.5}}}}", &path[1..]));
    }
    documents += &rule("inverse", "{not: {score: {model: error, gte: 0.5}}}");
    documents += "signal: inside\nurl: http://10.0.0.1/\ninput: text\noutput: {score: /score}\n---\n";
    documents += &rule("inside", "{score: {model: inside, gte: 0.5}}");
    let mut world = world(long_wait_settings(), &documents).await;
    let submission = world.submit_text("a", "hello").await;
    let row = world.wait_until_evaluated(&post("a"), submission).await;
    assert_eq!(matched_rules(&row), ["good"]);
    let expected_errors = [
        ("busy", "status_429"),
        ("error", "status_500"),
        ("hang", "timeout"),
        ("html", "no_json"),
        ("huge", "too_large"),
        ("inside", "blocked_address"),
        ("inverse", "status_500"),
        ("moved", "status_302"),
        ("nan", "no_json"),
        ("shape", "shape"),
        ("slow", "timeout"),
        ("text", "shape"),
    ];
    assert_eq!(
        errored_rules(&row),
        expected_errors.map(|(rule, why)| (rule.to_owned(), format!("score: {why}")))
    );
    assert_eq!(model.recorded_requests("/error").len(), 1, "equal calls are one");
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_model_is_retried_if_its_pause_fits_the_timeout() {
    let model = Model::start().await;
    let paths = ["/once-busy", "/busy-for-long"];
    let mut documents = model.signals(&paths, "timeout: 30s");
    for path in paths {
        documents += &rule(&path[1..], &format!("{{score: {{model: {}, gte: 0.5}}}}", &path[1..]));
    }
    let mut world = world(long_wait_settings(), &documents).await;
    let submission = world.submit_text("a", "hello").await;
    let row = world.wait_until_evaluated(&post("a"), submission).await;
    assert_eq!(matched_rules(&row), ["once-busy"]);
    assert_eq!(errored_rules(&row), [("busy-for-long".to_owned(), "score: status_503".to_owned())]);
    assert_eq!(paths.map(|path| model.recorded_requests(path).len()), [2, 1]);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_a_record_get_their_own_scores_of_a_batch() {
    let model = Model::start().await;
    let documents =
        model.signals(&["/batch"], "batch: {max: 3}") + &rule("mean", "{score: {model: batch, gte: 0.5}}");
    let mut world = world(long_wait_settings(), &documents).await;
    let entries: Vec<_> = (0..6)
        .map(|nth| {
            let text = if nth % 2 == 0 { "mean".to_owned() } else { format!("kind {nth}") };
            entry(&post(&format!("p{nth}")), &text)
        })
        .collect();
    let ids: Vec<_> = entries.iter().map(|entry| entry.submission_id).collect();
    world.submit(entries).await;
    for (nth, id) in ids.into_iter().enumerate() {
        let row = world.wait_until_evaluated(&post(&format!("p{nth}")), id).await;
        assert_eq!(matched_rules(&row), vec!["mean"; usize::from(nth % 2 == 0)], "p{nth}");
    }
    let calls =
        model.recorded_requests("/batch").into_iter().map(|body| body["input"].as_array().unwrap().clone());
    let mut inputs = calls.collect::<Vec<_>>().concat();
    inputs.sort_by_key(Value::to_string);
    assert_eq!(inputs, ["kind 1", "kind 3", "kind 5", "mean"], "equal inputs are asked once");
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_search_the_text_that_a_model_returns() {
    let model = Model::start().await;
    let spoken = |path: &str| {
        let (key, port) = (&path[1..], model.port);
        format!(
            "signal: {key}\nurl: http://127.0.0.1:{port}{path}\ninput: text\noutput: {{text: /text}}\n---\n"
        )
    };
    let both = "{all: [{model_text: {model: speech, words: [peace]}}, {score: {model: dear, gte: 0.5}}]}";
    let documents = spoken("/speech")
        + &spoken("/error")
        + &spoken("/low")
        + &model.signals(&["/dear"], "cost: 9")
        + &rule("scam", "{model_text: {model: speech, words: [scam]}}")
        + &rule("stops", both)
        + &rule("down", "{not: {model_text: {model: error, words: [scam]}}}")
        + &rule("no-text", "{not: {model_text: {model: low, words: [scam]}}}");
    let mut world = world(long_wait_settings(), &documents).await;
    for id in ["one", "two"] {
        let submission = world.submit_text(id, "a video").await;
        let row = world.wait_until_evaluated(&post(id), submission).await;
        assert_eq!(matched_rules(&row), ["scam"]);
        let hit = &parse_list(&row.matched)[0]["tree"]["model_text"]["hits"][0];
        assert_eq!((&hit["field"], &hit["found"]), (&json!("signal:speech"), &json!("SCAM")));
        let expected_errors = [("down", "model_text: status_500"), ("no-text", "model_text: shape")];
        assert_eq!(errored_rules(&row), expected_errors.map(|(rule, why)| (rule.to_owned(), why.to_owned())));
    }
    assert_eq!((model.recorded_requests("/speech").len(), model.recorded_requests("/dear").len()), (1, 0));
    let row = world.versions(&post("two")).await.remove(0);
    let config = world.deps.live.org(&org()).unwrap();
    let (store, org, uncounted) = (&world.deps.store, org(), std::collections::BTreeSet::new());
    let archive = Archive { store, org: &org, uncounted: &uncounted, window_rows: 9 };
    let explanation =
        stored_evaluation::explain(archive, config, &row, &"scam".into()).await.unwrap().unwrap();
    assert!(!explanation.is_guessed && serde_json::to_string(&explanation.tree).unwrap().contains("SCAM"));
    assert_eq!(model.recorded_requests("/speech").len(), 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_failing_model_is_paused() {
    let model = Model::start().await;
    let documents = model.signals(&["/error"], "") + &rule("r", "{score: {model: error, gte: 0.5}}");
    let mut world = world(long_wait_settings(), &documents).await;
    for (nth, why) in ["status_500", "status_500", "status_500", "resting"].into_iter().enumerate() {
        let id = format!("i{nth}");
        let submission = world.submit_text(&id, &id).await;
        let row = world.wait_until_evaluated(&post(&id), submission).await;
        assert_eq!(errored_rules(&row), [("r".to_owned(), format!("score: {why}"))]);
    }
    assert_eq!(model.recorded_requests("/error").len(), 3);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_waiting_for_a_model_is_handed_over_to_items_slow() {
    let model = Model::start().await;
    let condition = "{all: [{text: {in: [text], words: [maybe]}}, {score: {model: held, gte: 0.5}}]}";
    let documents = model.signals(&["/held"], "timeout: 60s") + &rule("held", condition);
    let mut world = world(short_wait_settings(), &documents).await;
    let (slow, quick) = (entry(&post("slow"), "maybe"), entry(&post("quick"), "scamcoin"));
    let (slow_id, quick_id) = (slow.submission_id, quick.submission_id);
    // In one record, so they share a batch.
    world.submit(vec![slow, quick]).await;
    assert_eq!(matched_rules(&world.wait_until_evaluated(&post("quick"), quick_id).await), ["demo-scam"]);
    world
        .wait_for("an accepted row and a call", async || {
            let row = world
                .versions(&post("slow"))
                .await
                .into_iter()
                .find(|row| row.state == SubmissionState::Accepted);
            row.filter(|_| !model.recorded_requests("/held").is_empty())
        })
        .await;
    model.go.add_permits(9);
    let evaluated = world
        .wait_for("an evaluated row", async || {
            let rows = world.versions(&post("slow")).await.into_iter();
            rows.filter(|row| row.submission_id == slow_id)
                .find(|row| row.state == SubmissionState::Evaluated)
        })
        .await;
    assert_eq!(matched_rules(&evaluated), ["held"]);
    // The call continued during the hand-over, so one answer served both waits.
    assert_eq!(model.recorded_requests("/held").len(), 1);
    world.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_is_routed_by_a_score_without_a_rule() {
    let model = Model::start().await;
    let lists = "queue: harm\n---\nrouting: reports\nentries:\n\
        - {name: harm, when: {all: [{score: {model: high, gte: 0.8}}, {field: {path: report.source, eq: user}}]}, queue: harm}\n\
        - {name: low, when: {score: {model: low, gte: 0.8}}, queue: harm}\n";
    let documents = format!("{}{lists}", model.signals(&["/high", "/low"], ""));
    let mut world = world(long_wait_settings(), &documents).await;
    let report = report(world.version().await, 1, "hello", false);
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    let key = (org(), JobClass::Review, "post".into(), "p1".into());
    let job = world
        .wait_for("the job to follow its score", async || {
            let pointer = world.deps.store.get::<SubjectJob>(&key).await.unwrap()?;
            let job = world.deps.store.get::<Job>(&(org(), pointer.job_id)).await.unwrap()?;
            (job.queue.as_str() == "harm").then_some(job)
        })
        .await;
    assert_eq!(job.routed_by.as_deref(), Some("reports/harm"));
    assert_eq!(model.recorded_requests("/high").len(), 1);
    world.drain().await;
}
