//! Makes the messages and calls of the URL Frontier API from `proto/urlfrontier.proto`, without a `protoc`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto/urlfrontier.proto");
    let mut compiler = protox::Compiler::new(["../proto"])?;
    compiler.include_imports(true).open_file("urlfrontier.proto")?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("urlfrontier.bin"), compiler.encode_file_descriptor_set())?; // for reflection
    tonic_prost_build::configure()
        .btree_map(".") // metadata is kept in order: the same metadata is the same bytes
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
