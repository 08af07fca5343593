//! Makes types of the messages that Envoy sends, from `proto`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let services = [
        "envoy/service/auth/v3/external_auth.proto",
        "envoy/service/ratelimit/v3/rls.proto",
    ];
    let mut files = protox::compile(services, ["proto"])?;
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(descriptors, files.encode_to_vec())?;
    // A client chooses the values of entries, and Envoy passes on bytes that are no UTF-8. A text could not be read, and upon an
    // error Envoy lets the request pass.
    let read_as_bytes = [
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "RateLimitDescriptor",
        "Entry",
        "value",
    ];
    as_bytes(&mut files, read_as_bytes).ok_or("the proto has no value of an entry")?;
    tonic_prost_build::configure()
        .build_client(false)
        .include_file("messages.rs")
        .compile_fds(files)?;
    Ok(())
}

/// Makes bytes of a text, which are the same on the wire.
fn as_bytes(files: &mut FileDescriptorSet, [file, outer, inner, field]: [&str; 4]) -> Option<()> {
    let file = files.file.iter_mut().find(|it| it.name() == file)?;
    let outer = file.message_type.iter_mut().find(|it| it.name() == outer)?;
    let inner = outer.nested_type.iter_mut().find(|it| it.name() == inner)?;
    let field = inner.field.iter_mut().find(|it| it.name() == field)?;
    field.set_type(Type::Bytes);
    Some(())
}
