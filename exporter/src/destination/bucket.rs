//! Bucket of an S3-compatible server as a destination.

use std::{
    fmt,
    io::{self, Read as _},
    path::Path as FilePath,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream::FuturesUnordered};
use object_store::{
    MultipartUpload, ObjectStore as _, ObjectStoreExt as _, PutPayload, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
};

use super::{DestinationError, error::is_missing_object, http_client::Connector};

/// Length of a part, and of the longest file that is sent in one request. Some servers demand parts of equal length.
const PART_BYTES: u64 = 8 << 20;
/// Greatest number of parts of an object, by the protocol.
const MAX_PARTS: u64 = 10_000;
/// Parts of one file that are sent at once.
const CONCURRENT_PARTS: usize = 4;
/// Time for retries of one request. The schedule repeats a failed day later, so a long wait here gains little.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_RETRIES: usize = 3;

/// Access to a bucket.
pub(super) struct BucketAccess {
    pub(super) name: String,
    pub(super) prefix: String,
    /// Address of the server; `None` for AWS.
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    pub(super) http: reqwest::Client,
}

#[derive(Clone)]
pub(super) struct Bucket {
    store: Arc<AmazonS3>,
    /// Start of every key, empty or with a slash at its end.
    prefix: String,
    place: Arc<str>,
}

/// The client is left out: its output contains the id of the access key.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("place", &self.place)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Bucket {
    /// Prepares the client, without a request. The error has no secret.
    pub(super) fn new(access: BucketAccess) -> Result<Self, String> {
        let BucketAccess { name, prefix, endpoint, region, access_key_id, secret_access_key, http } = access;
        let place = match &endpoint {
            Some(endpoint) => format!("bucket {name} at {endpoint}"),
            None => format!("bucket {name} at AWS, region {region}"),
        };
        let retry =
            RetryConfig { max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(name)
            .with_region(region)
            .with_access_key_id(access_key_id)
            .with_secret_access_key(secret_access_key)
            // Deletion of several objects in one request is missing on some servers.
            .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
            .with_http_connector(Connector(http))
            .with_retry(retry);
        if let Some(endpoint) = endpoint {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| error.to_string())?;
        let prefix = if prefix.is_empty() { prefix } else { prefix + "/" };
        Ok(Self { store: Arc::new(store), prefix, place: place.into() })
    }

    pub(super) fn describe(&self) -> String {
        self.place.to_string()
    }

    pub(super) async fn put_file(&self, key: &str, file: &FilePath) -> Result<(), DestinationError> {
        let mut parts = FileParts::open(file).map_err(|error| self.local_error(key, &error))?;
        if parts.file_bytes <= PART_BYTES {
            let bytes = parts.read_next().await.map_err(|error| self.local_error(key, &error))?;
            return self.put_bytes(key, bytes.unwrap_or_default()).await;
        }
        let location = self.location(key)?;
        let upload = self.store.put_multipart(&location).await;
        let mut upload = upload.map_err(|error| self.error(key, &error))?;
        let send_result = self.send_parts(key, &mut parts, upload.as_mut()).await;
        let send_result = match send_result {
            Ok(()) => upload.complete().await.map(drop).map_err(|error| self.error(key, &error)),
            Err(error) => Err(error),
        };
        if send_result.is_err() {
            // Parts of an upload that is not aborted are kept and charged by the server. The first error is reported.
            let _aborted = upload.abort().await;
        }
        send_result
    }

    async fn send_parts(
        &self,
        key: &str,
        parts: &mut FileParts,
        upload: &mut dyn MultipartUpload,
    ) -> Result<(), DestinationError> {
        let mut running_parts = FuturesUnordered::new();
        while let Some(bytes) = parts.read_next().await.map_err(|error| self.local_error(key, &error))? {
            // Bounds the memory to the parts that are being sent.
            if running_parts.len() == CONCURRENT_PARTS {
                running_parts.next().await.transpose().map_err(|error| self.error(key, &error))?;
            }
            running_parts.push(upload.put_part(PutPayload::from(bytes)));
        }
        running_parts.try_collect::<()>().await.map_err(|error| self.error(key, &error))
    }

    pub(super) async fn put_bytes(&self, key: &str, bytes: Bytes) -> Result<(), DestinationError> {
        let put_result = self.store.put(&self.location(key)?, PutPayload::from(bytes)).await;
        put_result.map(drop).map_err(|error| self.error(key, &error))
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, DestinationError> {
        let object = match self.store.get(&self.location(key)?).await {
            Ok(object) => object,
            Err(error) if is_missing_object(&error) => return Ok(None),
            Err(error) => return Err(self.error(key, &error)),
        };
        object.bytes().await.map(Some).map_err(|error| self.error(key, &error))
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, DestinationError> {
        let location = self.location(prefix)?;
        let objects = self.store.list(Some(&location));
        let keys = objects.map_ok(|object| {
            let key = object.location.as_ref();
            key.strip_prefix(&self.prefix).unwrap_or(key).to_owned()
        });
        keys.try_collect().await.map_err(|error| self.error(prefix, &error))
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), DestinationError> {
        match self.store.delete(&self.location(key)?).await {
            Err(error) if !is_missing_object(&error) => Err(self.error(key, &error)),
            _ => Ok(()),
        }
    }

    fn location(&self, key: &str) -> Result<Path, DestinationError> {
        Path::parse(format!("{}{key}", self.prefix))
            .map_err(|_| DestinationError::invalid_key(self.describe(), key))
    }

    fn error(&self, key: &str, error: &object_store::Error) -> DestinationError {
        DestinationError::bucket(self.describe(), &format!("{}{key}", self.prefix), error)
    }

    fn local_error(&self, key: &str, error: &io::Error) -> DestinationError {
        DestinationError::local_file(self.describe(), &format!("{}{key}", self.prefix), error)
    }
}

/// Local file that is read in parts of equal length.
struct FileParts {
    file: Option<std::fs::File>,
    file_bytes: u64,
    part_bytes: u64,
}

impl FileParts {
    fn open(path: &FilePath) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let file_bytes = file.metadata()?.len();
        let part_bytes = PART_BYTES.max(file_bytes.div_ceil(MAX_PARTS));
        Ok(Self { file: Some(file), file_bytes, part_bytes })
    }

    /// Reads the next part; `None` at the end.
    async fn read_next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(file) = self.file.take() else { return Ok(None) };
        let part_bytes = self.part_bytes;
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            (&file).take(part_bytes).read_to_end(&mut bytes)?;
            io::Result::Ok((file, bytes))
        });
        let (file, bytes) = read.await.map_err(|_| io::Error::other("the process stops"))??;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.file = Some(file);
        Ok(Some(Bytes::from(bytes)))
    }
}
