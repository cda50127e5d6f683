use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const PLENTY: usize = 64 * 1024 * 1024;
const ALL: [Encoding; 4] = [Encoding::Gzip, Encoding::Deflate, Encoding::Brotli, Encoding::Zstd];

fn encode(encoding: Encoding, body: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Encoding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Encoding::Brotli => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            encoder.write_all(body).unwrap();
            encoder.into_inner()
        }
        Encoding::Zstd => zstd::encode_all(body, 3).unwrap(),
    }
}

fn encode_raw_deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn decode(encodings: &[Encoding], wire: &[u8], limit_bytes: usize) -> Result<Decoded, DecodeError> {
    decode_in_pieces(encodings, wire, wire.len().max(1), limit_bytes)
}

fn decode_in_pieces(
    encodings: &[Encoding],
    wire: &[u8],
    piece: usize,
    limit_bytes: usize,
) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(encodings, limit_bytes);
    wire.chunks(piece).try_for_each(|piece| decoder.push(piece))?;
    Ok(decoder.finish())
}

fn whole(body: &[u8]) -> Result<Decoded, DecodeError> {
    Ok(Decoded { body: body.to_vec(), complete: true })
}

fn page() -> Vec<u8> {
    (0..5_000).flat_map(|line| format!("<p>line {line} of {}</p>\n", line * 7 % 1_000).into_bytes()).collect()
}

#[test]
fn every_encoding_is_undone_however_it_is_cut_into_pieces() {
    let page = page();
    for encoding in ALL {
        let wire = encode(encoding, &page);
        for piece in [1, 2, 7, 1_000, wire.len()] {
            assert_eq!(decode_in_pieces(&[encoding], &wire, piece, PLENTY), whole(&page), "{encoding:?} by {piece}");
        }
    }
}

#[test]
fn deflate_without_the_zlib_wrapper_is_undone_too() {
    let wire = encode_raw_deflate(&page());
    for piece in [1, wire.len()] {
        assert_eq!(decode_in_pieces(&[Encoding::Deflate], &wire, piece, PLENTY), whole(&page()));
    }
}

#[test]
fn stacked_encodings_are_undone_last_first() {
    let page = page();
    let wire = encode(Encoding::Brotli, &encode(Encoding::Gzip, &page));
    assert_eq!(decode_in_pieces(&[Encoding::Gzip, Encoding::Brotli], &wire, 11, PLENTY), whole(&page));
    let wire = encode(Encoding::Zstd, &wire);
    let three = [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd];
    assert_eq!(decode(&three, &wire, PLENTY), whole(&page));
}

#[test]
fn all_members_of_a_gzip_file_and_all_frames_of_a_zstd_file_count() {
    for encoding in [Encoding::Gzip, Encoding::Zstd] {
        let wire = [encode(encoding, b"first "), encode(encoding, b""), encode(encoding, b"second")].concat();
        for piece in [1, wire.len()] {
            assert_eq!(decode_in_pieces(&[encoding], &wire, piece, PLENTY), whole(b"first second"));
        }
    }
}

#[test]
fn bytes_after_the_end_are_ignored() {
    for encoding in ALL {
        for padding in [&b"\0\0\0\0"[..], b"\r\n", b"\x1f\x00 no member", b"<!-- cached -->", b"(28"] {
            let wire = [&encode(encoding, b"body")[..], padding].concat();
            let decoded = decode(&[encoding], &wire, PLENTY).unwrap();
            assert_eq!(decoded.body, b"body", "{encoding:?} then {padding:?}");
        }
    }
}

#[test]
fn a_stream_that_stops_early_keeps_what_it_gave_and_says_so() {
    let page = page();
    for encoding in ALL {
        let wire = encode(encoding, &page);
        let decoded = decode(&[encoding], &wire[..wire.len() - 3], PLENTY).unwrap();
        assert!(!decoded.complete, "{encoding:?}");
        assert!(page.starts_with(&decoded.body), "{encoding:?}");
        let decoded = decode(&[encoding], &wire[..wire.len() / 2], PLENTY).unwrap();
        assert!(!decoded.complete && page.starts_with(&decoded.body), "{encoding:?}");
    }
    let wire = encode(Encoding::Gzip, &page);
    assert!(decode(&[Encoding::Gzip], &wire[..wire.len() / 2], PLENTY).unwrap().body.len() > page.len() / 4);
}

#[test]
fn no_bytes_decode_to_no_bytes() {
    for encoding in ALL {
        assert_eq!(decode(&[encoding], b"", PLENTY), whole(b""));
        assert_eq!(decode(&[encoding], &encode(encoding, b""), PLENTY), whole(b""));
    }
}

#[test]
fn a_page_that_was_never_encoded_is_corrupt() {
    for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
        let result = decode(&[encoding], b"<!doctype html><title>plain</title>", PLENTY);
        assert_eq!(result, Err(DecodeError::Corrupt { encoding }));
    }
    // Brotli has no magic number: plain text may begin a stream, but not stay one.
    let result = decode(&[Encoding::Brotli], &b"<!doctype html><title>plain</title>".repeat(50), PLENTY);
    assert_ne!(result, whole(&b"<!doctype html><title>plain</title>".repeat(50)));
}

#[test]
fn a_wrong_checksum_is_corrupt() {
    let mut wire = encode(Encoding::Gzip, b"body");
    let crc = wire.len() - 8;
    wire[crc] ^= 1;
    assert_eq!(decode(&[Encoding::Gzip], &wire, PLENTY), Err(DecodeError::Corrupt { encoding: Encoding::Gzip }));
}

#[test]
fn a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    let body = vec![b'x'; 100_000];
    for encoding in ALL {
        let wire = encode(encoding, &body);
        assert_eq!(decode(&[encoding], &wire, 100_000), whole(&body), "{encoding:?}");
        assert_eq!(decode(&[encoding], &wire, 99_999), Err(DecodeError::TooLarge { limit_bytes: 99_999 }));
    }
}

#[test]
fn a_bomb_is_stopped_at_the_limit_with_the_beginning_in_hand() {
    let limit_bytes = 1024 * 1024;
    for encoding in ALL {
        let bomb = encode(encoding, &vec![0; 64 * limit_bytes]);
        assert!(bomb.len() < limit_bytes / 8);
        let mut decoder = Decoder::new(&[encoding], limit_bytes);
        assert_eq!(decoder.push(&bomb), Err(DecodeError::TooLarge { limit_bytes }), "{encoding:?}");
        let kept = decoder.finish().body;
        assert_eq!(kept.len(), limit_bytes);
        assert!(kept.capacity() <= 2 * limit_bytes + SCRATCH_BYTES);
    }
}

#[test]
fn a_bomb_between_two_stages_is_stopped_although_little_comes_out() {
    // A million empty gzip members decode to nothing; inside another gzip they are a few kilobytes.
    let nothing = encode(Encoding::Gzip, b"").repeat(1_000_000);
    let bomb = encode(Encoding::Gzip, &nothing);
    assert!(bomb.len() < nothing.len() / 100);
    let limit_bytes = 1024 * 1024;
    let result = decode(&[Encoding::Gzip, Encoding::Gzip], &bomb, limit_bytes);
    assert_eq!(result, Err(DecodeError::TooLarge { limit_bytes }));
}

#[test]
fn a_zstd_frame_that_asks_for_a_huge_window_is_refused() {
    // Magic, descriptor without content size, window descriptor: exponent 21 asks for 2 GiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
    let corrupt = DecodeError::Corrupt { encoding: Encoding::Zstd };
    assert_eq!(decode(&[Encoding::Zstd], &frame, PLENTY), Err(corrupt));
}

#[test]
fn encodings_are_read_from_one_header_or_several() {
    let parse = |values: &[&'static str]| parse_encodings(values.iter().map(|value| value.as_bytes()));
    assert_eq!(parse(&[]), Some(vec![]));
    assert_eq!(parse(&["identity", ""]), Some(vec![]));
    assert_eq!(parse(&[" GZip "]), Some(vec![Encoding::Gzip]));
    assert_eq!(parse(&["x-gzip, br"]), Some(vec![Encoding::Gzip, Encoding::Brotli]));
    assert_eq!(parse(&["deflate", "zstd"]), Some(vec![Encoding::Deflate, Encoding::Zstd]));
    assert_eq!(parse(&["gzip, compress"]), None);
    assert_eq!(parse(&["utf-8"]), None);
    assert_eq!(parse(&["gzip,gzip,gzip"]), Some(vec![Encoding::Gzip; 3]));
    assert_eq!(parse(&["gzip,gzip,gzip,gzip"]), None);
}

proptest! {
    #[test]
    fn what_is_encoded_comes_back(
        body in proptest::collection::vec(any::<u8>(), 0..20_000),
        stack in proptest::collection::vec(0_usize..4, 1..=ENCODINGS_MAX),
        piece in 1_usize..3_000,
    ) {
        let stack: Vec<Encoding> = stack.into_iter().map(|index| ALL[index]).collect();
        let wire = stack.iter().fold(body.clone(), |body, &encoding| encode(encoding, &body));
        prop_assert_eq!(decode_in_pieces(&stack, &wire, piece, PLENTY), whole(&body));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused_within_the_limit(
        wire in proptest::collection::vec(any::<u8>(), 0..4_000),
        index in 0_usize..4,
        prefix in 0_usize..20,
    ) {
        // A valid beginning takes the codecs further than noise alone.
        let encoding = ALL[index];
        let start = encode(encoding, b"a beginning that is valid, and repeated, repeated");
        let wire = [&start[..prefix.min(start.len())], &wire].concat();
        let mut decoder = Decoder::new(&[encoding], 10_000);
        let _ = decoder.push(&wire);
        prop_assert!(decoder.finish().body.len() <= 10_000);
    }
}
