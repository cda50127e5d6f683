//! Content decoding: from the bytes a server sent to the bytes it meant.
//!
//! The archive wants the transferred bytes and the parser the decoded ones, so the client leaves `Content-Encoding`
//! alone and this file undoes it while the body comes in. Two things are bounded: the bytes that come out, counted at
//! every stage, so that a bomb is stopped at the limit and not when memory is; and the number of stages.
//!
//! Servers are sloppy, so some faults are forgiven: a stream that stops early keeps what it gave and says so, bytes
//! after the end are ignored, "deflate" may be zlib or raw. A stream that contradicts itself is an error.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Operation};

/// Most encodings undone on one body. Nobody serves more than two; each costs memory and multiplies a bomb.
pub const ENCODINGS_MAX: usize = 3;

/// Output buffer of one stage.
const SCRATCH_BYTES: usize = 16 * 1024;

/// Largest zstd window, as a power of two: 8 MiB, the bound RFC 9659 sets for `Content-Encoding: zstd`.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A content encoding we can undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `gzip` or `x-gzip`, one member or several.
    Gzip,
    /// `deflate`: zlib as specified, or raw as some servers send it.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`, one frame or several.
    Zstd,
}

/// Why a body could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// More bytes came out than allowed; the decoder holds as many as were.
    #[error("decoded body is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit that was reached.
        limit_bytes: usize,
    },
    /// The stream contradicts itself, or was never of this encoding.
    #[error("body is not valid {encoding:?}")]
    Corrupt {
        /// The encoding that was being undone.
        encoding: Encoding,
    },
}

/// What a decoder has made of the whole input.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The decoded bytes.
    pub body: Vec<u8>,
    /// Whether every stream came to its end; if not, the input stopped early.
    pub complete: bool,
}

/// A page that is unpacked to more than this is given as it was transferred.
const UNPACKED_BYTES_MAX: usize = 1 << 30;

/// A payload without the content encoding that its head names; as it is, if that cannot be undone.
pub fn unpacked(head: &[u8], payload: &[u8]) -> Vec<u8> {
    let head = String::from_utf8_lossy(head).into_owned();
    let values: Vec<&[u8]> = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))
        .map(|(_, value)| value.trim().as_bytes())
        .collect();
    let encodings = parse_encodings(values).unwrap_or_default();
    let mut decoder = Decoder::new(&encodings, UNPACKED_BYTES_MAX);
    match decoder.push(payload) {
        Ok(()) => decoder.finish().body,
        Err(_) => payload.to_vec(),
    }
}

/// Reads the values of `Content-Encoding` headers, in the order they were applied; `identity` is left out.
/// Returns `None` when there is an encoding we do not know or there are more than [`ENCODINGS_MAX`].
pub fn parse_encodings<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<Encoding>> {
    let mut encodings = Vec::new();
    for token in values.into_iter().flat_map(|value| value.split(|&byte| byte == b',')) {
        let encoding = match token.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => continue,
            b"gzip" | b"x-gzip" => Encoding::Gzip,
            b"deflate" => Encoding::Deflate,
            b"br" => Encoding::Brotli,
            b"zstd" => Encoding::Zstd,
            _ => return None,
        };
        encodings.push(encoding);
    }
    (encodings.len() <= ENCODINGS_MAX).then_some(encodings)
}

/// Undoes a list of encodings, fed with the body piece by piece.
pub struct Decoder {
    stages: Vec<Stage>,
    sink: Sink,
}

impl Decoder {
    /// Prepares to undo `encodings`, given in the order they were applied, into at most `limit_bytes`.
    pub fn new(encodings: &[Encoding], limit_bytes: usize) -> Self {
        let stages = encodings.iter().rev().map(|&encoding| Stage::new(encoding)).collect();
        Decoder { stages, sink: Sink { body: Vec::new(), limit_bytes } }
    }

    /// Decodes the next piece. After an error only [`Decoder::finish`] makes sense.
    pub fn push(&mut self, input: &[u8]) -> Result<(), DecodeError> {
        feed(&mut self.stages, input, &mut self.sink)
    }

    /// Returns what was decoded.
    pub fn finish(self) -> Decoded {
        let complete = self.stages.iter().all(|stage| stage.state != State::Inside);
        Decoded { body: self.sink.body, complete }
    }
}

/// Where the last stage's output goes.
struct Sink {
    body: Vec<u8>,
    limit_bytes: usize,
}

impl Sink {
    fn take(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let room = self.limit_bytes - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(DecodeError::TooLarge { limit_bytes: self.limit_bytes }) } else { Ok(()) }
    }
}

/// Passes `input` through the first stage and what comes out through the others.
fn feed(stages: &mut [Stage], mut input: &[u8], sink: &mut Sink) -> Result<(), DecodeError> {
    let Some((stage, rest)) = stages.split_first_mut() else { return sink.take(input) };
    let mut output_waits = false;
    while output_waits || !input.is_empty() {
        if stage.state == State::Ended {
            stage.state = if stage.codec.begins_again(input[0]) { State::Fresh } else { State::Ignoring };
            stage.unit_bytes = 0;
        }
        if stage.state == State::Ignoring {
            return Ok(());
        }
        let Ok(step) = stage.codec.step(input, &mut stage.scratch) else {
            // Whatever follows a whole member and yields nothing is padding, not a second member.
            if stage.units > 0 && stage.unit_bytes == 0 {
                stage.state = State::Ignoring;
                return Ok(());
            }
            return Err(DecodeError::Corrupt { encoding: stage.encoding });
        };
        input = &input[step.read..];
        stage.state = if step.ended { State::Ended } else { State::Inside };
        stage.units += usize::from(step.ended);
        stage.unit_bytes += step.written;
        stage.bytes += step.written;
        output_waits = step.written == stage.scratch.len() && !step.ended;
        feed(rest, &stage.scratch[..step.written], sink)?;
        // What lies between two stages is bounded like the result: it costs as much time to walk through.
        if stage.bytes > sink.limit_bytes {
            return Err(DecodeError::TooLarge { limit_bytes: sink.limit_bytes });
        }
    }
    Ok(())
}

/// One encoding being undone.
struct Stage {
    encoding: Encoding,
    codec: Codec,
    state: State,
    units: usize,      // members or frames that came to their end
    unit_bytes: usize, // what the current one has given
    bytes: usize,      // what all have given
    scratch: Box<[u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Inside,
    Ended,
    Ignoring,
}

impl Stage {
    fn new(encoding: Encoding) -> Self {
        let codec = Codec::new(encoding);
        let scratch = vec![0; SCRATCH_BYTES].into_boxed_slice();
        Stage { encoding, codec, state: State::Fresh, units: 0, unit_bytes: 0, bytes: 0, scratch }
    }
}

enum Codec {
    Gzip(Decompress),
    Deflate(Option<Decompress>), // the first byte tells zlib from raw
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(zstd::stream::raw::Decoder<'static>),
}

/// What one call of a codec did.
struct Step {
    read: usize,
    written: usize,
    ended: bool,
}

/// The codec does not accept its input.
struct Refused;

impl Codec {
    fn new(encoding: Encoding) -> Self {
        let alloc = StandardAlloc::default;
        match encoding {
            Encoding::Gzip => Codec::Gzip(Decompress::new_gzip(15)),
            Encoding::Deflate => Codec::Deflate(None),
            // Strict: no "large window" streams, which HTTP does not have and which may ask for a gigabyte.
            Encoding::Brotli => Codec::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc()))),
            Encoding::Zstd => {
                let mut decoder = zstd::stream::raw::Decoder::new().expect("an empty dictionary is accepted");
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
                decoder.set_parameter(window).expect("the window is within the library's bounds");
                Codec::Zstd(decoder)
            }
        }
    }

    /// Prepares for another member or frame if `first`, the byte after the end of the last, can begin one.
    fn begins_again(&mut self, first: u8) -> bool {
        match self {
            Codec::Gzip(inflate) if first == 0x1f => {
                *inflate = Decompress::new_gzip(15);
                true
            }
            Codec::Zstd(_) => first == 0x28 || (0x50..=0x5f).contains(&first),
            Codec::Gzip(_) | Codec::Deflate(_) | Codec::Brotli(_) => false,
        }
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Refused> {
        let step = match self {
            Codec::Gzip(inflate) => step_inflate(inflate, input, output),
            Codec::Deflate(inflate) => {
                let inflate = inflate.get_or_insert_with(|| Decompress::new(looks_like_zlib(input[0])));
                step_inflate(inflate, input, output)
            }
            Codec::Brotli(state) => step_brotli(state, input, output),
            Codec::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output).map_err(|_| Refused)?;
                Ok(Step { read: status.bytes_read, written: status.bytes_written, ended: status.remaining == 0 })
            }
        }?;
        let idle = step.read == 0 && step.written == 0 && !step.ended;
        if idle && !input.is_empty() { Err(Refused) } else { Ok(step) }
    }
}

/// Returns whether a stream beginning with `first` is zlib: method 8, window at most 32 KiB. A raw stream would begin
/// so only with a stored block whose padding is not zero, which no encoder writes.
fn looks_like_zlib(first: u8) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7
}

fn step_inflate(inflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<Step, Refused> {
    let (read_before, written_before) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None).map_err(|_| Refused)?;
    Ok(Step {
        read: (inflate.total_in() - read_before) as usize,
        written: (inflate.total_out() - written_before) as usize,
        ended: status == Status::StreamEnd,
    })
}

fn step_brotli(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &[u8],
    output: &mut [u8],
) -> Result<Step, Refused> {
    let (mut input_left, mut read) = (input.len(), 0);
    let (mut output_left, mut written, mut total) = (output.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut input_left,
        &mut read,
        input,
        &mut output_left,
        &mut written,
        output,
        &mut total,
        state,
    );
    match result {
        BrotliResult::ResultFailure => Err(Refused),
        BrotliResult::ResultSuccess => Ok(Step { read, written, ended: true }),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok(Step { read, written, ended: false }),
    }
}

#[cfg(test)]
mod tests;
