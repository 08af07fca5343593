//! Makes types of the messages that Envoy sends, from `proto`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let services = [
        "envoy/service/auth/v3/external_auth.proto",
        "envoy/service/ratelimit/v3/rls.proto",
    ];
    let files = protox::compile(services, ["proto"])?;
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(descriptors, files.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(false)
        .include_file("messages.rs")
        .compile_fds(files)?;
    Ok(())
}
