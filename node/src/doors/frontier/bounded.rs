//! Bounds of what clients may have under way. A call that is no stream has little to say, so it is read as a whole before anybody works at it: so many at once, so many bytes of each,
//! within a time. Streams of health and reflection are so many at once. The streams of the API itself are bounded where they are opened.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

/// Bytes of a call that is no stream: a filter and a key as long as they may be, and room for what is not looked at.
const CALL_BYTES_MAX: usize = 256 << 10;
/// How long it may take to come.
const CALL_PATIENCE: Duration = Duration::from_secs(30);

/// A service that so many calls may be made of at once. Clones share the bound.
#[derive(Clone)]
pub(super) struct Bounded<S> {
    service: S,
    calls: Arc<Semaphore>,
    is_stream: fn(&str) -> Option<Stay>,
}

/// What is known of a call by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// A stream that somebody else counts.
    CountedElsewhere,
    /// A stream that counts as a call until it is over.
    UntilOver,
}

impl<S> Bounded<S> {
    /// Bounds a service. `is_stream` says which of its calls the client may go on saying something in.
    pub(super) fn new(service: S, calls_max: usize, is_stream: fn(&str) -> Option<Stay>) -> Bounded<S> {
        Bounded { service, calls: Arc::new(Semaphore::new(calls_max)), is_stream }
    }
}

impl<S: NamedService> NamedService for Bounded<S> {
    const NAME: &'static str = S::NAME;
}

type Answer = http::Response<Body>;

impl<S> Service<http::Request<Body>> for Bounded<S>
where
    S: Service<http::Request<Body>, Response = Answer, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // The one that is ready carries the call out.
        let spare = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, spare);
        let stay = (self.is_stream)(request.uri().path());
        if stay == Some(Stay::CountedElsewhere) {
            return Box::pin(service.call(request));
        }
        let Ok(room) = Arc::clone(&self.calls).try_acquire_owned() else {
            let busy = Status::resource_exhausted("too many calls are under way; come again later");
            return Box::pin(async move { Ok(busy.into_http()) });
        };
        Box::pin(async move {
            if stay == Some(Stay::UntilOver) {
                let answer = service.call(request).await?;
                return Ok(answer.map(|body| while_it_lasts(body, room)));
            }
            let (head, body) = request.into_parts();
            let body = match tokio::time::timeout(CALL_PATIENCE, Limited::new(body, CALL_BYTES_MAX).collect()).await {
                Ok(Ok(body)) => body.to_bytes(),
                Ok(Err(_)) => {
                    let long =
                        format!("a call that is no stream has at most {CALL_BYTES_MAX} bytes, and comes as a whole");
                    return Ok(Status::resource_exhausted(long).into_http());
                }
                Err(_) => return Ok(Status::deadline_exceeded("the call did not come as a whole").into_http()),
            };
            let answer = service.call(http::Request::from_parts(head, Body::new(Full::new(body)))).await;
            drop(room);
            answer
        })
    }
}

/// A body that holds its room until it is over, or nobody reads it any more.
fn while_it_lasts(body: Body, room: OwnedSemaphorePermit) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _held = &room;
        frame
    }))
}

/// Connections as they come, so many at once.
pub(super) fn connections(listener: TcpListener, max: usize) -> impl Stream<Item = std::io::Result<Connection>> {
    let room = Arc::new(Semaphore::new(max));
    TcpIncoming::from(listener).with_nodelay(Some(true)).filter_map(move |stream| match stream {
        // What is refused is closed: its client says UNAVAILABLE, and can go to another node.
        Ok(stream) => Arc::clone(&room).try_acquire_owned().ok().map(|room| Ok(Connection { stream, _room: room })),
        Err(error) => Some(Err(error)),
    })
}

/// A connection, which holds its room.
pub(super) struct Connection {
    stream: TcpStream,
    _room: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tonic::codegen::Bytes;

    use super::*;

    /// Answers at once, with what it was told.
    #[derive(Clone)]
    struct Echo;

    impl Service<http::Request<Body>> for Echo {
        type Response = Answer;
        type Error = Infallible;
        type Future = Ready<Result<Answer, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            ready(Ok(http::Response::new(request.into_body())))
        }
    }

    fn request(path: &str, body: Body) -> http::Request<Body> {
        http::Request::builder().uri(path).body(body).unwrap()
    }

    fn never() -> Body {
        Body::new(axum::body::Body::from_stream(tokio_stream::pending::<Result<Bytes, Infallible>>()))
    }

    fn code(answer: &Answer) -> Option<&str> {
        answer.headers().get("grpc-status").and_then(|code| code.to_str().ok())
    }

    fn bounded() -> Bounded<Echo> {
        Bounded::new(Echo, 2, |path| match path {
            "/other" => Some(Stay::CountedElsewhere),
            "/stream" => Some(Stay::UntilOver),
            _ => None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_do_not_come_are_few_and_end() {
        let mut service = bounded();
        let mut half: Vec<_> = (0..2).map(|_| service.call(request("/call", never()))).collect();
        assert!(half.iter_mut().all(|call| call.now_or_never().is_none()));
        let third = service.call(request("/call", Body::empty())).await.unwrap();
        assert_eq!(code(&third), Some("8"), "RESOURCE_EXHAUSTED");
        assert_eq!(code(&service.call(request("/other", Body::empty())).await.unwrap()), None);
        for call in half {
            assert_eq!(code(&call.await.unwrap()), Some("4"), "DEADLINE_EXCEEDED");
        }
        let whole = Body::new(Full::new(Bytes::from(vec![7; CALL_BYTES_MAX])));
        let answer = service.call(request("/call", whole)).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), CALL_BYTES_MAX);
        let long = Body::new(Full::new(Bytes::from(vec![7; CALL_BYTES_MAX + 1])));
        assert_eq!(code(&service.call(request("/call", long)).await.unwrap()), Some("8"));
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_are_closed_and_those_that_end_make_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut open = Box::pin(connections(listener, 2));
        let [mut a, mut b] = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let [first, second] = [open.next().await.unwrap().unwrap(), open.next().await.unwrap().unwrap()];
        let mut refused = TcpStream::connect(address).await.unwrap();
        let mut byte = [0; 1];
        let read = refused.read(&mut byte);
        tokio::select! {
            read = read => assert!(matches!(read, Ok(0) | Err(_)), "it is closed"),
            _ = open.next() => panic!("there is no room"),
        }
        drop(first);
        let _third = TcpStream::connect(address).await.unwrap();
        let third = open.next().await.unwrap().unwrap();
        // And they are what they were.
        let (mut second, mut third, mut there, mut back) = (second, third, [0; 5], [0; 4]);
        b.write_all(b"there").await.unwrap();
        second.read_exact(&mut there).await.unwrap();
        second.write_all(b"back").await.unwrap();
        b.read_exact(&mut back).await.unwrap();
        assert_eq!((&there, &back), (b"there", b"back"));
        third.shutdown().await.unwrap();
        assert_eq!(a.read(&mut [0; 1]).await.unwrap(), 0, "the first was dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_counts_until_it_is_over() {
        let mut service = bounded();
        let open = [service.call(request("/stream", never())).await, service.call(request("/stream", never())).await];
        assert_eq!(code(&service.call(request("/stream", Body::empty())).await.unwrap()), Some("8"));
        drop(open);
        assert_eq!(code(&service.call(request("/stream", Body::empty())).await.unwrap()), None);
    }
}
