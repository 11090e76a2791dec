//! Schema registry for tests: stores registered schemas, and can be told to fail.
//!
//! It speaks only the HTTP of our client, and checks no compatibility.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

#[derive(Default)]
pub(crate) struct State {
    /// Answer for each id.
    pub(crate) schemas: BTreeMap<u32, serde_json::Value>,
    /// Every request: method, path, and its headers as they came.
    pub(crate) requests: Vec<(String, String, String)>,
    /// Status to answer every request with, if set.
    pub(crate) status: Option<u16>,
}

pub(crate) struct FakeRegistry {
    pub(crate) url: String,
    pub(crate) state: Arc<Mutex<State>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl FakeRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/apis/x", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state, serving }
    }

    pub(crate) fn add_schema(&self, id: u32, schema: &str) {
        self.state.lock().unwrap().schemas.insert(id, serde_json::json!({ "schema": schema }));
    }

    pub(crate) fn requests_of(&self, path: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|(_, requested, _)| requested == path).count()
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().to_owned())
            })
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let (status, answer) = answer(&mut state.lock().unwrap(), &method, &path, &body);
        state.lock().unwrap().requests.push((method, path, head));
        let answer = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(answer.as_bytes()).await?;
    }
}

fn answer(state: &mut State, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    if let Some(status) = state.status {
        return (status, r#"{"error_code":1,"message":"told to"}"#.to_owned());
    }
    let path = path.strip_prefix("/apis/x").unwrap_or(path);
    match (method, path.strip_prefix("/schemas/ids/").map(str::parse::<u32>)) {
        ("POST", None) => {
            let request: serde_json::Value = serde_json::from_slice(body).unwrap();
            let registered_schema =
                state.schemas.iter().find(|(_, schema)| schema["schema"] == request["schema"]);
            let id = registered_schema
                .map_or_else(|| 100 + u32::try_from(state.schemas.len()).unwrap(), |(id, _)| *id);
            state.schemas.entry(id).or_insert_with(|| serde_json::json!({ "schema": request["schema"] }));
            (200, format!(r#"{{"id":{id}}}"#))
        }
        ("GET", Some(Ok(id))) => match state.schemas.get(&id) {
            Some(schema) => (200, schema.to_string()),
            None => (404, r#"{"error_code":40403,"message":"Schema not found"}"#.to_owned()),
        },
        _ => (404, r#"{"error_code":404,"message":"no such path"}"#.to_owned()),
    }
}
