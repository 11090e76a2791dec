//! Models with batches: sharing of calls, and the result of a call for each of its inputs.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_catalog::{MasterKey, ScoreSignal, Secrets, change};
use tidegate_egress::Client;
use tidegate_moderation::scores::{ScoreAnswer, Scorer, Settings};
use tidegate_schemas::ids::{ItemKey, OrgId};
use tidegate_store::Store;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::support::org;

/// Status line and body for a list of inputs; `nth` counts the calls from 1.
type Reply = fn(nth: usize, inputs: &[Value]) -> (&'static str, Value);

/// Model that records the inputs of its calls.
struct Model {
    signal: Arc<ScoreSignal>,
    calls: Arc<Mutex<Vec<Vec<Value>>>>,
}

impl Model {
    /// Starts a model with at most `max` inputs per call.
    async fn start(max: usize, reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let calls: Arc<Mutex<Vec<Vec<Value>>>> = Arc::default();
        let all = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&all), reply));
            }
        });
        let document = format!(
            "signal: s\nurl: {url}\ninput: text\noutput: {{score: /score}}\nbatch: {{max: {max}, answers: /results}}\n"
        );
        let files = [("signals.yaml".to_owned(), document)];
        let (compiled, _) = change::compile_offline(&files, &tidegate_catalog::Settings::default()).unwrap();
        Self { signal: Arc::clone(compiled.signal("s").unwrap()), calls }
    }

    fn calls(&self) -> Vec<Vec<Value>> {
        self.calls.lock().clone()
    }
}

async fn serve(mut socket: TcpStream, calls: Arc<Mutex<Vec<Vec<Value>>>>, reply: Reply) {
    let mut bytes = Vec::new();
    let body: Value = loop {
        let read = socket.read_buf(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes);
        // The body is complete once it parses.
        if let Some(body) = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok())
        {
            break body;
        }
        assert!(read > 0, "a request ended early");
    };
    let inputs = body["input"].as_array().unwrap().clone();
    let nth = {
        let mut calls = calls.lock();
        calls.push(inputs.clone());
        calls.len()
    };
    let (status, answer) = reply(nth, &inputs);
    let answer = answer.to_string();
    let length = answer.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    socket.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
}

/// Returns the input's own number as its score.
fn scored(input: &Value) -> Value {
    json!({"score": input.as_str().unwrap().parse::<f64>().unwrap()})
}

fn all_scored(_nth: usize, inputs: &[Value]) -> (&'static str, Value) {
    ("200 OK", json!({"results": inputs.iter().map(scored).collect::<Vec<_>>()}))
}

/// Store for scorers of one test.
struct Asker {
    folder: TempDir,
    store: Store,
}

impl Asker {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        Self { folder, store }
    }

    fn scorer(&self, settings: &Settings) -> Scorer {
        assert!(self.folder.path().exists());
        let egress = tidegate_egress::Settings {
            allow_cidrs: vec!["127.0.0.0/8".parse().unwrap()],
            connect_timeout_ms: 15_000,
            ..Default::default()
        };
        let secrets =
            Secrets::new(self.store.clone(), MasterKey::new([7; 32]), &tidegate_catalog::Settings::default());
        Scorer::new(Client::new(egress).unwrap(), self.store.clone(), secrets, settings)
    }
}

/// Settings under which only full batches are sent during a test.
fn full_batches() -> Settings {
    Settings { batch_wait_ms: 3_600_000, ..Settings::default() }
}

async fn ask_of(scorer: &Scorer, org: &OrgId, model: &Model, texts: &[&str]) -> Vec<ScoreAnswer> {
    let inputs: Vec<[Value; 1]> = texts.iter().map(|text| [json!(text)]).collect();
    let item = ItemKey::new("post", "p1");
    let answers = join_all(inputs.iter().map(|input| scorer.score(org, &model.signal, &item, input))).await;
    answers.into_iter().collect::<Result<_, _>>().unwrap()
}

/// Scores several items concurrently, one per text. Returns the score or the reason of each.
async fn ask(scorer: &Scorer, model: &Model, texts: &[&str]) -> Vec<Result<f64, String>> {
    read(ask_of(scorer, &org(), model, texts).await)
}

fn read(answers: Vec<ScoreAnswer>) -> Vec<Result<f64, String>> {
    let score_or_reason =
        |answer: ScoreAnswer| answer.map(|it| it.overall.unwrap()).map_err(|reason| reason.to_string());
    answers.into_iter().map(score_or_reason).collect()
}

fn failed(reason: &str) -> Result<f64, String> {
    Err(reason.to_owned())
}

#[tokio::test]
async fn inputs_of_several_items_share_a_call_and_get_their_own_scores() {
    let (model, asker) = (Model::start(4, all_scored).await, Asker::new());
    let scorer = asker.scorer(&full_batches());
    let texts = ["0.1", "0.2", "0.3", "0.4", "0.2"];
    let answers = ask(&scorer, &model, &texts).await;
    assert_eq!(answers, [Ok(0.1), Ok(0.2), Ok(0.3), Ok(0.4), Ok(0.2)]);
    let mut calls = model.calls();
    assert_eq!(calls.len(), 1);
    calls[0].sort_by_key(Value::to_string);
    assert_eq!(calls[0], ["0.1", "0.2", "0.3", "0.4"], "equal inputs are sent once");
    // Answers are stored separately, for other processes and for later calls.
    let second_scorer = asker.scorer(&Settings { batch_wait_ms: 0, ..Settings::default() });
    assert_eq!(ask(&second_scorer, &model, &["0.3", "0.5"]).await, [Ok(0.3), Ok(0.5)]);
    assert_eq!(model.calls()[1..], [[json!("0.5")]], "a single input is sent as a list");
}

#[tokio::test]
async fn two_orgs_never_share_a_call() {
    let (model, asker) = (Model::start(2, all_scored).await, Asker::new());
    let scorer = asker.scorer(&full_batches());
    let (one, other) = (OrgId::new("one"), OrgId::new("other"));
    // Both orgs have an even number of waiting inputs.
    let responses = tokio::join!(
        ask_of(&scorer, &one, &model, &["0.11"]),
        ask_of(&scorer, &other, &model, &["0.21"]),
        ask_of(&scorer, &one, &model, &["0.12"]),
        ask_of(&scorer, &other, &model, &["0.22"]),
    );
    let answers = [responses.0, responses.1, responses.2, responses.3].map(read).concat();
    assert_eq!(answers, [Ok(0.11), Ok(0.21), Ok(0.12), Ok(0.22)]);
    let calls = model.calls();
    assert_eq!(calls.len(), 2);
    for call in calls {
        let orgs: Vec<_> = call.iter().map(|input| input.as_str().unwrap()[..3].to_owned()).collect();
        assert!(orgs == ["0.1"; 2] || orgs == ["0.2"; 2], "{orgs:?}");
    }
}

#[tokio::test]
async fn answer_with_a_wrong_number_of_scores_is_discarded() {
    let short = |_: usize, inputs: &[Value]| {
        ("200 OK", json!({"results": inputs[1..].iter().map(scored).collect::<Vec<_>>()}))
    };
    let (model, asker) = (Model::start(3, short).await, Asker::new());
    let scorer = asker.scorer(&full_batches());
    let texts = ["0.1", "0.2", "0.3"];
    for calls in [1, 2] {
        assert_eq!(ask(&scorer, &model, &texts).await, vec![failed("batch_length"); 3]);
        assert_eq!(model.calls().len(), calls, "no answer is stored");
    }
}

#[tokio::test]
async fn unreadable_answer_affects_only_its_own_input() {
    let partly = |_: usize, inputs: &[Value]| {
        let one = |input: &Value| if input == "0.2" { json!({"score": "high"}) } else { scored(input) };
        ("200 OK", json!({"results": inputs.iter().map(one).collect::<Vec<_>>()}))
    };
    let (model, asker) = (Model::start(3, partly).await, Asker::new());
    let scorer = asker.scorer(&full_batches());
    let answers = ask(&scorer, &model, &["0.1", "0.2", "0.3"]).await;
    assert_eq!(answers, [Ok(0.1), failed("shape"), Ok(0.3)]);
}

#[tokio::test]
async fn busy_model_is_retried_with_the_whole_batch() {
    let busy = |nth: usize, inputs: &[Value]| match nth {
        1 => ("429 Too Many Requests\r\nRetry-After: 0", json!(null)),
        _ => all_scored(nth, inputs),
    };
    let (model, asker) = (Model::start(3, busy).await, Asker::new());
    // A second failure in a row would make the model rest, so the batch must count as one failure.
    let scorer = asker.scorer(&Settings { failures: 2, ..full_batches() });
    assert_eq!(ask(&scorer, &model, &["0.1", "0.2", "0.3"]).await, [Ok(0.1), Ok(0.2), Ok(0.3)]);
    let calls = model.calls();
    assert_eq!((calls.len(), &calls[0]), (2, &calls[1]));
}

#[tokio::test]
async fn a_failed_batch_is_one_failure_of_the_model() {
    let (model, asker) =
        (Model::start(2, |_, _| ("500 Internal Server Error", json!(null))).await, Asker::new());
    let scorer = asker.scorer(&Settings { failures: 2, ..full_batches() });
    for reason in ["status_500", "status_500", "resting"] {
        assert_eq!(ask(&scorer, &model, &["0.1", "0.2"]).await, vec![failed(reason); 2]);
    }
    assert_eq!(model.calls().len(), 2);
}

#[tokio::test]
async fn refused_input_does_not_affect_other_scores() {
    let picky = |nth: usize, inputs: &[Value]| match inputs.contains(&json!("poison")) {
        true => ("400 Bad Request", json!(null)),
        false => all_scored(nth, inputs),
    };
    let (model, asker) = (Model::start(4, picky).await, Asker::new());
    let scorer = asker.scorer(&Settings { failures: 1, ..full_batches() });
    let answers = ask(&scorer, &model, &["0.1", "0.2", "poison", "0.4"]).await;
    assert_eq!(answers, [Ok(0.1), Ok(0.2), failed("status_400"), Ok(0.4)]);
    // All four inputs, two halves, and two single inputs of the half with the refused one.
    assert_eq!(model.calls().len(), 5);
}

#[tokio::test]
async fn batch_is_limited_to_the_request_size() {
    let (model, asker) = (Model::start(9, all_scored).await, Asker::new());
    // Space for one input and the rest of the request.
    let scorer = asker.scorer(&Settings { request_bytes: 50, ..full_batches() });
    let texts = ["0.1000", "0.2000", "0.3000"].map(|text| format!("{text}{}", "0".repeat(10)));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (first, rest) = texts.split_at(1);
    // The third input never fills a batch, so only the first two are awaited.
    let responses = tokio::select! {
        biased;
        both = async { tokio::join!(ask(&scorer, &model, first), ask(&scorer, &model, &rest[..1])) } => both,
        _never = ask(&scorer, &model, &rest[1..]) => unreachable!("an incomplete batch was sent"),
    };
    assert_eq!((responses.0.len(), responses.1.len()), (1, 1));
    assert!(model.calls().iter().all(|call| call.len() == 1), "{:?}", model.calls());
}
