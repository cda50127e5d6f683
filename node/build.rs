//! Makes the messages and calls of the URL Frontier API from `proto/urlfrontier.proto`, without a `protoc`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "../proto/urlfrontier.proto";
    println!("cargo:rerun-if-changed={proto}");
    let files = protox::compile([proto], ["../proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    tonic_prost_build::configure()
        .btree_map(".") // metadata is kept in order: the same metadata is the same bytes
        .file_descriptor_set_path(out.join("urlfrontier.bin"))
        .compile_fds(files)?;
    Ok(())
}
