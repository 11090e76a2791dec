//! Contract of destinations: the same cases for a folder and for a bucket of a real S3-compatible server.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_exporter::destination::{Destination, DestinationSettings};

use crate::support::s3_server::{BUCKET, S3Server, SECRET};

/// Destination of a case, with the folders that it needs.
struct Fixture {
    destination: Destination,
    /// Folder for local files.
    folder: tempfile::TempDir,
    _server: Option<S3Server>,
}

fn open(settings: &DestinationSettings) -> Destination {
    settings.open(|_| None).unwrap_or_else(|problem| panic!("{}: {}", problem.setting, problem.text))
}

impl Fixture {
    fn folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        Self { destination: open(&DestinationSettings::folder(&root)), folder, _server: None }
    }

    async fn bucket(prefix: &str) -> Self {
        let server = S3Server::start().await;
        let destination = open(&server.settings(BUCKET, prefix));
        Self { destination, folder: tempfile::tempdir().unwrap(), _server: Some(server) }
    }

    async fn put(&self, key: &str, text: &str) {
        self.destination.put_bytes(key, Bytes::from(text.to_owned())).await.unwrap();
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        self.destination.get(key).await.unwrap()
    }

    async fn list(&self, prefix: &str) -> Vec<String> {
        self.destination.list(prefix).await.unwrap()
    }

    /// Creates a local file with a recognisable pattern.
    fn create_file(&self, bytes: usize) -> (PathBuf, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at / 7 % 251) as u8).collect();
        let path = self.folder.path().join(format!("file-{bytes}"));
        std::fs::write(&path, &content).unwrap();
        (path, content)
    }
}

macro_rules! contract {
    ($($case:ident;)*) => {
        mod folder {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(&super::Fixture::folder()).await;
            })*
        }

        mod bucket {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                for prefix in ["", "tidegate/a"] {
                    super::$case(&super::Fixture::bucket(prefix).await).await;
                }
            })*
        }
    };
}

contract! {
    objects_are_read_back_listed_and_deleted;
    put_replaces_the_whole_object;
    files_of_any_size_arrive_whole;
    object_is_visible_only_once_it_is_complete;
    unusable_key_or_missing_file_is_refused;
}

async fn objects_are_read_back_listed_and_deleted(fixture: &Fixture) {
    for key in ["a/day=2026-11-28/part-1.parquet", "a/x", "ab", "b"] {
        assert_eq!(fixture.get(key).await, None);
        fixture.put(key, key).await;
        assert_eq!(fixture.get(key).await.unwrap(), key.as_bytes());
    }
    assert_eq!(fixture.list("a").await, ["a/day=2026-11-28/part-1.parquet", "a/x"]);
    assert_eq!(fixture.list("a/day=2026-11-28").await, ["a/day=2026-11-28/part-1.parquet"]);
    assert_eq!(fixture.list("missing").await, Vec::<String>::new());
    for _ in 0..2 {
        fixture.destination.delete("a/day=2026-11-28/part-1.parquet").await.unwrap();
    }
    assert_eq!(fixture.list("a").await, ["a/x"]);
    fixture.destination.delete("never").await.unwrap();
}

async fn put_replaces_the_whole_object(fixture: &Fixture) {
    fixture.put("a/x", "a long text").await;
    fixture.put("a/x", "short").await;
    assert_eq!(fixture.get("a/x").await.unwrap(), "short");
    let (path, content) = fixture.create_file(100);
    fixture.destination.put_file("a/x", &path).await.unwrap();
    assert_eq!(fixture.get("a/x").await.unwrap(), content);
}

async fn files_of_any_size_arrive_whole(fixture: &Fixture) {
    const MIB: usize = 1 << 20;
    for bytes in [0, 1, 8 * MIB, 8 * MIB + 1, 16 * MIB, 43 * MIB + 5] {
        let (path, content) = fixture.create_file(bytes);
        fixture.destination.put_file("a/x", &path).await.unwrap();
        assert!(fixture.get("a/x").await.unwrap() == content, "{bytes} bytes differ");
    }
    assert_eq!(fixture.list("a").await, ["a/x"]);
}

async fn object_is_visible_only_once_it_is_complete(fixture: &Fixture) {
    let (path, content) = fixture.create_file(64 << 20);
    let upload = tokio::spawn({
        let destination = fixture.destination.clone();
        async move { destination.put_file("a/x", &path).await.unwrap() }
    });
    while !upload.is_finished() {
        if let Some(bytes) = fixture.get("a/x").await {
            assert_eq!(bytes.len(), content.len());
        }
    }
    upload.await.unwrap();
    assert!(fixture.get("a/x").await.unwrap() == content);
}

async fn unusable_key_or_missing_file_is_refused(fixture: &Fixture) {
    for key in ["../x", "/x", "", "a//b"] {
        let error = fixture.destination.put_bytes(key, Bytes::new()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("{key:?}")), "{error}");
    }
    let error = fixture.destination.put_file("a/x", Path::new("/nonexistent/file")).await.unwrap_err();
    assert!(error.to_string().contains("the exported file cannot be read"), "{error}");
    assert_eq!(fixture.get("a/x").await, None);
}

#[tokio::test]
async fn missing_folder_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("unmounted");
    let destination = open(&DestinationSettings::folder(&root));
    let errors = [
        destination.put_bytes("a/x", Bytes::new()).await.err(),
        destination.get("a/x").await.err(),
        destination.list("a").await.err(),
        destination.delete("a/x").await.err(),
    ];
    for error in errors {
        let text = error.unwrap().to_string();
        for part in ["unmounted", "key a", "create the folder, or mount its disk"] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert!(!root.exists());
}

#[tokio::test]
async fn refusal_of_the_server_names_bucket_key_answer_and_remedy() {
    let server = S3Server::start().await;
    let valid = server.settings(BUCKET, "p");
    for (settings, parts) in [
        (
            server.settings("missing-bucket", "p"),
            ["bucket missing-bucket", "NoSuchBucket", "create the bucket"],
        ),
        (
            DestinationSettings { secret_access_key: Some("hunter2-wrong".to_owned()), ..valid.clone() },
            ["bucket exports", "403 SignatureDoesNotMatch", "`secret_access_key`"],
        ),
        (
            DestinationSettings { access_key_id: Some("unknown-key".to_owned()), ..valid.clone() },
            ["bucket exports", "the server answers 403", "`access_key_id`"],
        ),
    ] {
        let destination = open(&settings);
        let errors = [
            destination.put_bytes("a/x", Bytes::from_static(b"x")).await.err(),
            destination.get("a/x").await.err(),
            destination.list("a").await.err(),
            destination.delete("a/x").await.err(),
        ];
        for error in errors {
            let text = error.unwrap().to_string();
            for part in parts.into_iter().chain([server.endpoint(), "key p/a"]) {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert!(!text.contains("hunter2") && !text.contains(SECRET), "{text}");
        }
    }
}

#[tokio::test]
async fn server_without_an_answer_is_named() {
    let port = tidegate_test_support::free_port().unwrap();
    let settings = DestinationSettings {
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        ..S3Server::start().await.settings(BUCKET, "")
    };
    let error = open(&settings).put_bytes("a/x", Bytes::new()).await.unwrap_err().to_string();
    for part in ["bucket exports at http://127.0.0.1", "key a/x", "does not answer", "check `endpoint`"] {
        assert!(error.contains(part), "{error}");
    }
}
