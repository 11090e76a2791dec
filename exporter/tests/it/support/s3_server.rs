//! S3-compatible server on a folder, in the test's process.

use std::path::PathBuf;

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{
    S3Result,
    access::{S3Access, S3AccessContext},
    auth::SimpleAuth,
    s3_error,
    service::S3ServiceBuilder,
};
use s3s_fs::FileSystem;
use tidegate_exporter::destination::DestinationSettings;
use tokio::net::TcpListener;

pub const KEY_ID: &str = "test-key-id";
pub const SECRET: &str = "hunter2hunter2";
pub const BUCKET: &str = "exports";

/// Refuses unsigned requests, and requests to a bucket that does not exist. The server itself would create it.
struct ExistingBuckets(PathBuf);

#[async_trait::async_trait]
impl S3Access for ExistingBuckets {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        if request.credentials().is_none() {
            return Err(s3_error!(AccessDenied));
        }
        let path = request.s3_path();
        let bucket = path.as_object().map(|(bucket, _)| bucket).or(path.as_bucket());
        match bucket {
            Some(bucket) if !self.0.join(bucket).is_dir() => Err(s3_error!(NoSuchBucket)),
            _ => Ok(()),
        }
    }
}

/// Server with one bucket. It stops with the test's runtime.
pub struct S3Server {
    folder: tempfile::TempDir,
    endpoint: String,
}

impl S3Server {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        builder.set_access(ExistingBuckets(folder.path().to_owned()));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    let _closed = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { folder, endpoint }
    }

    pub fn settings(&self, bucket: &str, prefix: &str) -> DestinationSettings {
        DestinationSettings {
            url: format!("s3://{bucket}/{prefix}"),
            endpoint: Some(self.endpoint.clone()),
            access_key_id: Some(KEY_ID.to_owned()),
            secret_access_key: Some(SECRET.to_owned()),
            ..DestinationSettings::folder(std::path::Path::new("x"))
        }
    }

    pub fn create_bucket(&self, name: &str) {
        std::fs::create_dir(self.folder.path().join(name)).unwrap();
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
