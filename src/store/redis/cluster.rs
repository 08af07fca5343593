use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

/// How often a call follows its slot to another node.
const MOVES: usize = 4;

/// Sends this to the node that has its slot. A node that says where else the slot is has done nothing, so
/// the call goes there; it is never sent again for another reason.
pub(super) async fn send(mut connection: ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    for _ in 0..MOVES {
        match told(connection.req_packed_command(command)).await {
            // The connection has begun to learn where the slots are, and waits until it knows.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => {}
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                return ask(&mut connection, command, &error).await;
            }
            answer => return answer,
        }
    }
    told(connection.req_packed_command(command)).await
}

/// An error that the server tells is an error.
async fn told(answer: impl Future<Output = RedisResult<Value>>) -> RedisResult<Value> {
    answer.await.and_then(Value::extract_error)
}

/// Whether the connection has ended with the runtime that it was made in. It looks for nodes that it has lost
/// by itself, and then is as good as it was.
pub(super) fn is_over(error: &RedisError) -> bool {
    // No kind tells one from the other.
    error.is_io_error() && error.to_string().starts_with("redis_cluster: Unable to ")
}

/// Sends this to the node that is about to get the slot.
async fn ask(
    connection: &mut ClusterConnection,
    command: &Cmd,
    moved: &RedisError,
) -> RedisResult<Value> {
    let node = moved
        .redirect_node()
        .and_then(|(node, _)| node.rsplit_once(':'));
    let Some((host, Ok(port))) = node.map(|(host, port)| (host, port.parse())) else {
        return Err(moved.clone());
    };
    let node = SingleNodeRoutingInfo::ByAddress {
        host: host.to_owned(),
        port,
    };
    let mut asking = redis::pipe();
    asking.cmd("ASKING").add_command(command.clone());
    let mut answers = connection.route_pipeline(asking, 0, 2, node).await?;
    let answer = answers.pop().ok_or_else(|| moved.clone())?;
    answer.extract_error()
}
