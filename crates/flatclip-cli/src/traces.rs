//! Traces of a server's requests for OpenTelemetry, sent to the collector that the usual variables name
//! (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, ...). Without an endpoint nothing is sent.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::sync::OnceLock;
use std::time::Duration;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

const PATIENCE: Duration = Duration::from_secs(10);

/// Sends with the client that fetches models.
#[derive(Debug)]
struct Sender(ureq::Agent);

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let answer = self.0.run(Request::from_parts(head, body.to_vec()))?;
        let (head, mut body) = answer.into_parts();
        Ok(Response::from_parts(head, body.read_to_vec()?.into()))
    }
}

/// What turns spans into traces; `None` where no collector is named, or the exporter cannot be made.
pub(crate) fn layer<S>() -> Option<impl Layer<S>>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let is_named = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    if !["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"].into_iter().any(is_named) {
        return None;
    }
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
    let sender = Sender(config.build().into());
    let exporter = SpanExporter::builder().with_http().with_http_client(sender).build().ok()?;
    let mut resource = Resource::builder();
    if !is_named("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name("flatclip");
    }
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let tracer = provider.tracer("flatclip");
    let _ = PROVIDER.set(provider);
    Some(tracing_opentelemetry::layer().with_tracer(tracer))
}

pub(crate) fn end() {
    if let Some(provider) = PROVIDER.get() {
        let _ = provider.shutdown(); // a collector that is away is no error of the server
    }
}
