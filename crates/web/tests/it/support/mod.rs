//! Test server with a few routes, and clients that speak to it byte by byte.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    extract::{RawQuery, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tidegate_schemas::ids::OrgId;
use tidegate_test_support::PATIENCE;
use tidegate_web::{AnswerOrg, DrainOutcome, HttpServer, Problem, Settings, with_error_envelope};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// More bytes than the system buffers for a client.
pub(crate) const LONG_ANSWER: usize = 64 << 20;

pub(crate) const LARGE_ANSWER: usize = 1 << 20;

pub(crate) struct TestApp {
    pub(crate) http: HttpServer,
    pub(crate) handler_entered: Notify,
    pub(crate) release_handler: Notify,
    /// Number of large answers built so far.
    pub(crate) answers_made: AtomicUsize,
}

type App = State<Arc<TestApp>>;

/// Answers with the length of the body.
async fn count_body(State(app): App, request: Request) -> Result<String, Problem> {
    let body = app.http.read_body(request, &OrgId::new("org")).await?;
    Ok(body.bytes.len().to_string())
}

/// Waits in the handler until the test releases it.
async fn hold(State(app): App) -> &'static str {
    app.handler_entered.notify_one();
    app.release_handler.notified().await;
    "done"
}

async fn answer_long(State(app): App, request: Request) -> Result<String, Problem> {
    app.http.admit(&request, &OrgId::new("org"))?;
    app.handler_entered.notify_one();
    Ok("x".repeat(LONG_ANSWER))
}

/// Short answer to a client with a valid key.
async fn answer_known(State(app): App, request: Request) -> Result<&'static str, Problem> {
    app.http.admit(&request, &OrgId::new("org"))?;
    Ok("known")
}

/// Answers with a megabyte on behalf of the organisation in the query.
async fn answer_large(State(app): App, RawQuery(org): RawQuery, request: Request) -> Response {
    let org = OrgId::from(org.unwrap_or_default());
    if let Err(problem) = app.http.admit(&request, &org) {
        return problem.into_response();
    }
    app.answers_made.fetch_add(1, Ordering::Relaxed);
    let mut answer = vec![b'x'; LARGE_ANSWER].into_response();
    answer.extensions_mut().insert(AnswerOrg(org));
    answer
}

/// Answers with bytes that are produced as the test releases them.
async fn answer_slowly(State(app): App, request: Request) -> Result<axum::body::Body, Problem> {
    app.http.admit(&request, &OrgId::new("org"))?;
    let chunks = futures::stream::unfold((app, 0), |(app, number)| async move {
        if number == 3 {
            return None;
        }
        app.handler_entered.notify_one();
        app.release_handler.notified().await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b"chunk")), (app, number + 1)))
    });
    Ok(axum::body::Body::from_stream(chunks))
}

async fn panic_in_handler() -> &'static str {
    panic!("a secret of the handler")
}

pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    pub(crate) app: Arc<TestApp>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<DrainOutcome>,
}

impl RunningServer {
    pub(crate) async fn new(set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        set(&mut settings);
        let http = HttpServer::new("tests", settings).unwrap();
        let app = Arc::new(TestApp {
            http,
            handler_entered: Notify::new(),
            release_handler: Notify::new(),
            answers_made: AtomicUsize::default(),
        });
        let router = Router::new()
            .route("/count", post(count_body))
            .route("/held", get(hold))
            .route("/broken", get(panic_in_handler))
            .route("/large", get(answer_large).post(answer_large))
            .route("/known", get(answer_known))
            .route("/long", get(answer_long))
            .route("/slow", get(answer_slowly))
            .route("/refused", post(async || StatusCode::UNAUTHORIZED))
            .with_state(Arc::clone(&app));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = {
            let (stop, http) = (stop.clone(), app.http.clone());
            tokio::spawn(async move { http.serve(listener, with_error_envelope(router), stop).await })
        };
        Self { address, app, stop, task }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), unread: Vec::new() }
    }

    /// Connects from another address of this machine.
    pub(crate) async fn connect_from(&self, address: [u8; 4]) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        Client { stream: socket.connect(self.address).await.unwrap(), unread: Vec::new() }
    }

    pub(crate) async fn ask(&self, text: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(text).await;
        client.answer().await.unwrap()
    }

    pub(crate) async fn get_http2(&self, path: &str) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(format!("http://{}{path}", self.address));
        send.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    }

    pub(crate) async fn stop_and_drain(self) -> DrainOutcome {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.unwrap().unwrap()
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the problem in the body, after checking that the envelope is complete.
    pub(crate) fn problem(&self) -> Value {
        assert!(self.headers.contains("content-type: application/problem+json"), "{self:?}");
        let problem: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        let request_id = problem["errors"][0]["requestId"].as_str().unwrap();
        assert!(self.headers.contains(&format!("x-request-id: {request_id}")), "{self:?}");
        problem
    }
}

impl Client {
    pub(crate) async fn send(&mut self, text: impl AsRef<[u8]>) {
        // The server may have answered and closed the connection already.
        let _result = self.stream.write_all(text.as_ref()).await;
    }

    /// Returns the next answer, or `None` if the server ended the connection.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        timeout(PATIENCE, async {
            loop {
                if let Some(answer) = self.parse() {
                    return Some(answer);
                }
                let mut bytes = [0; 4096];
                match self.stream.read(&mut bytes).await {
                    Ok(0) | Err(_) => return None,
                    Ok(length) => self.unread.extend_from_slice(&bytes[..length]),
                }
            }
        })
        .await
        .expect("the server neither answers nor ends the connection")
    }

    fn parse(&mut self) -> Option<Answer> {
        let head = self.unread.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let headers = String::from_utf8(self.unread[..head].to_vec()).unwrap();
        let length = headers.lines().find_map(|line| line.strip_prefix("content-length: "));
        let end = head + length.map_or(0, |length| length.parse::<usize>().unwrap());
        let body = String::from_utf8(self.unread.get(head..end)?.to_vec()).unwrap();
        self.unread.drain(..end);
        let status = headers[9..12].parse().unwrap();
        Some(Answer { status, headers, body })
    }
}

pub(crate) const JSON: &str = "host: h\r\ncontent-type: application/json\r\n";

pub(crate) fn with_length(length: usize, body: &str) -> String {
    format!("POST /count HTTP/1.1\r\n{JSON}content-length: {length}\r\n\r\n{body}")
}
