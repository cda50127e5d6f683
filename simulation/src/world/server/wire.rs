//! Answers that hyper would never send: written to the socket by hand.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::web::{Answer, Delivery};

/// Plays `answer` on a connection that is closed afterwards. Calls `last` just before the last piece is sent: the client
/// cannot have everything, and ask for something else, before that.
pub(super) async fn play(
    stream: &mut TcpStream,
    answer: &Answer,
    head_only: bool,
    last: impl FnOnce(),
) -> io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let mut sink = [0u8; 1024];
    let gone = async {
        // Whatever the client still sends is of no interest, only that it stops.
        while matches!(reader.read(&mut sink).await, Ok(read) if read > 0) {}
    };
    let send = async {
        let head = |length: Option<u64>| head(answer, length);
        let (body, length) = (&answer.body, answer.body.len() as u64);
        match answer.delivery {
            Delivery::Reset => last(),
            Delivery::Hang => std::future::pending().await,
            Delivery::Verbatim => {
                last();
                writer.write_all(body).await?;
            }
            _ if head_only => {
                last();
                writer.write_all(&head(Some(length))).await?;
            }
            Delivery::Whole => {
                last();
                writer.write_all(&head(Some(length))).await?;
                writer.write_all(body).await?;
            }
            Delivery::Drip { piece_bytes, pause_ms } => {
                writer.write_all(&head(Some(length))).await?;
                let piece_bytes = piece_bytes.max(1) as usize;
                let (start, end) = body.split_at(body.len().saturating_sub(1) / piece_bytes * piece_bytes);
                for piece in start.chunks(piece_bytes) {
                    writer.write_all(piece).await?;
                    tokio::time::sleep(Duration::from_millis(pause_ms.into())).await;
                }
                last();
                writer.write_all(end).await?;
            }
            Delivery::Repeated { times } => {
                writer.write_all(&head(Some(length * u64::from(times)))).await?;
                for _ in 1..times {
                    writer.write_all(body).await?;
                }
                last();
                writer.write_all(body).await?;
            }
            Delivery::Endless => {
                writer.write_all(&head(None)).await?;
                loop {
                    writer.write_all(format!("{length:x}\r\n").as_bytes()).await?;
                    writer.write_all(body).await?;
                    writer.write_all(b"\r\n").await?;
                    tokio::time::sleep(Duration::from_millis(1)).await; // leaves some of the processor to the client
                }
            }
            Delivery::Declared { bytes } => {
                last();
                writer.write_all(&head(Some(bytes))).await?;
                writer.write_all(body).await?;
            }
            Delivery::ResetAfterBody => {
                writer.write_all(&head(Some(length * 2))).await?;
                writer.write_all(body).await?;
                // Long enough for the client to have read the half; a reset throws away what is under way.
                tokio::time::sleep(Duration::from_millis(20)).await;
                last();
            }
            Delivery::HangAfterHeaders => {
                writer.write_all(&head(Some(length.max(1)))).await?;
                std::future::pending().await
            }
        }
        writer.flush().await
    };
    tokio::select! {
        biased;
        sent = send => sent?,
        () = gone => {}
    }
    match answer.delivery {
        // Takes effect when the stream is dropped.
        Delivery::Reset | Delivery::ResetAfterBody => stream.set_zero_linger()?,
        // An orderly end: the client gets all bytes even if it is still sending.
        _ => stream.shutdown().await?,
    }
    Ok(())
}

/// Status line and headers; without a length the body is chunked.
fn head(answer: &Answer, length: Option<u64>) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {} Odd\r\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    match length {
        Some(length) => out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes()),
        None => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"connection: close\r\n\r\n");
    out
}
