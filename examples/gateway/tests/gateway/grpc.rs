use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::scene::{Scene, listener};

const LIMITS: &str = "[policies.address]\nquota = \"3/minute\"\nkey = \"client_ip\"\n";

#[tokio::test]
async fn calls_of_grpc_pass_with_their_streams_and_their_trailers() {
    let (listener, upstream) = listener().await;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::Serving)
        .await;
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let scene = Scene::before(&upstream, LIMITS).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", scene.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let about = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };

    let response = client.check(about("shop")).await.unwrap();
    assert!(response.metadata().contains_key("ratelimit"));
    assert_eq!(response.get_ref().status, 1);

    let mut stream = client.watch(about("shop")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::NotServing)
        .await;
    assert_eq!(stream.message().await.unwrap().unwrap().status, 2);
    drop(stream);

    // The status of the upstream, not of the gateway.
    let unknown = client.check(about("none")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let refused = client.check(about("shop")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}
