//! Compressed bodies: accepted codings, limits, and budget while they are decompressed.

use std::io::Write as _;

use tidegate_test_support::{PATIENCE, eventually_ok};

use crate::support::{Answer, RunningServer, with_length};

/// Builds a request with a compressed JSON body.
fn compressed_request(coding: &str, body: &[u8]) -> Vec<u8> {
    let head =
        with_length(body.len(), "").replace("\r\n\r\n", &format!("\r\ncontent-encoding: {coding}\r\n\r\n"));
    [head.as_bytes(), body].concat()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

async fn send(server: &RunningServer, request: Vec<u8>) -> Answer {
    let mut client = server.connect().await;
    client.send(request).await;
    client.answer().await.unwrap()
}

#[tokio::test]
async fn compressed_bodies_are_accepted() {
    let server = RunningServer::new(|_| {}).await;
    let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for (coding, body) in [("gzip", gzip(&text)), ("zstd", zstd::encode_all(&*text, 19).unwrap())] {
        let answer = send(&server, compressed_request(coding, &body)).await;
        assert_eq!((answer.status, &*answer.body), (200, "1200000"), "{coding}");
        let answer = send(&server, compressed_request(coding, &body[..body.len() - 1])).await;
        assert_eq!(answer.status, 400, "{coding}");
        assert!(answer.problem()["detail"].as_str().unwrap().contains(coding), "{answer:?}");
    }
    let answer = send(&server, compressed_request("br", b"x")).await;
    assert_eq!(answer.status, 415);
    assert!(answer.headers.contains("accept-encoding: gzip, zstd"), "{answer:?}");
    assert_eq!(server.app.http.body_budget().used_amount(), 0, "the whole budget is released");
}

#[tokio::test]
async fn body_that_decompresses_beyond_a_limit_is_413() {
    let server = RunningServer::new(|settings| settings.body_expansion = 50).await;
    let zeros = vec![0; 9 << 20];
    // The first text exceeds the size limit, the next two the ratio; the last one is small enough to be exempt.
    let incompressible: Vec<u8> = (0..5_u32 << 19).flat_map(u32::to_le_bytes).collect();
    for (text, status) in
        [(&incompressible[..], 413), (&zeros[..], 413), (&zeros[..200_000], 413), (&zeros[..60_000], 200)]
    {
        for (coding, body) in [("gzip", gzip(text)), ("zstd", zstd::encode_all(text, 3).unwrap())] {
            let answer = send(&server, compressed_request(coding, &body)).await;
            assert_eq!(answer.status, status, "{coding}: {answer:?}");
            assert_eq!(server.app.http.body_budget().used_amount(), 0);
        }
    }
}

#[tokio::test]
async fn decompressed_bytes_count_in_the_budget() {
    let server = RunningServer::new(|settings| {
        (settings.body_bytes, settings.in_flight_bytes) = (1 << 20, 3 << 20);
        settings.body_expansion = 10_000;
    })
    .await;
    let text = vec![b'x'; 1 << 20];
    let request = compressed_request("gzip", &gzip(&text));
    let mut clients = Vec::new();
    // The last bytes are missing, so the requests stay in progress.
    for _ in 0..4 {
        let mut client = server.connect().await;
        client.send(&request[..request.len() - 4]).await;
        clients.push(client);
    }
    let leased_bytes = async || match server.app.http.body_budget().used_amount() {
        used_bytes if used_bytes >= 1 << 19 => Ok(used_bytes),
        used_bytes => Err(anyhow::anyhow!("{used_bytes} bytes are counted")),
    };
    let used_bytes =
        eventually_ok("the decompressed bytes are counted", PATIENCE, leased_bytes).await.unwrap();
    assert!(used_bytes <= 3 << 20);
    let mut statuses = Vec::new();
    for mut client in clients {
        client.send(&request[request.len() - 4..]).await;
        statuses.push(client.answer().await.unwrap().status);
    }
    assert!(statuses.contains(&503), "the requests together exceed the organisation's share: {statuses:?}");
    assert_eq!(server.app.http.body_budget().used_amount(), 0);
}

#[tokio::test]
async fn byte_order_mark_is_skipped() {
    let server = RunningServer::new(|_| {}).await;
    assert_eq!(server.ask(&with_length(5, "\u{feff}{}")).await.body, "2");
    assert_eq!(server.ask(&with_length(4, "\u{feff}1")).await.body, "1");
    assert_eq!(send(&server, compressed_request("gzip", &gzip("\u{feff}{}".as_bytes()))).await.body, "2");
}
