//! What the fuzz targets do with their bytes.

#[path = "readers.rs"]
mod readers;

use axum::body::Body;
use axum::http::Request;
use std::cell::LazyCell;
use tower::ServiceExt as _;

thread_local! {
    /// In memory where the system has such a place: a target writes a file for each input.
    static FOLDER: LazyCell<tempfile::TempDir> = LazyCell::new(|| {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
    });
    static SERVER: LazyCell<(tokio::runtime::Runtime, axum::Router)> = LazyCell::new(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let router = runtime.block_on(async { flatclip_serve::router(flatclip_serve::Config::default()) });
        (runtime, router.expect("a server"))
    });
}

/// File names for kinds whose reader looks at the name; others are named after their kind.
const FILES: [(&str, &str); 3] = [("safetensors", "w.safetensors"), ("torch", "w.pt"), ("prompt", "p.safetensors")];

/// Reads the bytes as each kind of file. A panic, a refusal without the path, or another prompt than the checksum says, is a
/// finding.
pub fn read(kinds: &[&str], bytes: &[u8]) {
    FOLDER.with(|folder| {
        for kind in kinds {
            let file = FILES.iter().find(|(name, _)| name == kind).map_or(*kind, |(_, file)| file);
            let reader = readers::reader(kind);
            readers::fate(reader, folder.path(), file, bytes, None);
        }
    });
}

/// The routes that take a body, with the content types that they take.
const ROUTES: [(&str, &str); 7] = [
    ("/v1/classify", "application/json"),
    ("/v1/classify", "multipart/form-data; boundary=xx"),
    ("/v1/embed/image", "multipart/form-data; boundary=xx"),
    ("/v1/embed/text", "application/json"),
    ("/v1/sessions", "application/json"),
    ("/v2/models/pocket/infer", "application/json"),
    ("/hf/zero-shot-image-classification", "application/json"),
];

/// The first byte selects the route, the others are the body. A panic is a finding, and so is a status of 5xx other than
/// "busy".
pub fn post(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let (path, kind) = ROUTES[usize::from(*first) % ROUTES.len()];
    let request = Request::post(path).header("host", "localhost").header("content-type", kind);
    let request = request.body(Body::from(body.to_vec())).expect("a request");
    SERVER.with(|server| {
        let (runtime, router) = &**server;
        let status = runtime.block_on(router.clone().oneshot(request)).expect("the router answers").status();
        assert!(!status.is_server_error() || status == 503, "{path}: {status}");
    });
}
