//! Fetching, against a server on this machine that behaves well or badly.

use super::forge::{Precision, safetensors, small, tensors};
use crate::digest::Digest;
use crate::weights::{Places, hub, known, resolve};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// How the server treats the weight file.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// The first answer stops in the middle.
    CutsOnce,
    /// Says another SHA-256.
    WrongDigest,
    /// Sends everything whatever range was asked for.
    NoRanges,
    /// Sends one byte more than it says.
    TooMuch,
    /// Has no such file.
    Missing,
}

struct Server {
    url: String,
    /// Method, path and range of every request.
    log: Arc<Mutex<Vec<String>>>,
}

fn serve(weights: Vec<u8>, manner: Manner) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = log.clone();
    // Ends with the test process: the listener is never closed, and the thread never joined.
    std::thread::spawn(move || {
        let cuts = AtomicUsize::new(usize::from(manner == Manner::CutsOnce));
        for stream in listener.incoming() {
            let _ = answer(stream.unwrap(), &weights, manner, &cuts, &seen);
        }
    });
    Server { url, log }
}

fn answer(
    mut stream: TcpStream,
    weights: &[u8],
    manner: Manner,
    cuts: &AtomicUsize,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let (mut first, mut range) = (String::new(), 0);
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(from) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            range = from.trim().trim_end_matches('-').parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    log.lock().unwrap().push(format!("{method} {path} {range}"));
    let close = "Connection: close\r\n\r\n";
    if path.ends_with("open_clip_config.json") {
        let body = r#"{"model_cfg": {"quick_gelu": true}}"#;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}", body.len())?;
        return if method == "GET" { stream.write_all(body.as_bytes()) } else { Ok(()) };
    }
    if !path.ends_with("open_clip_model.safetensors") || manner == Manner::Missing {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n{close}");
    }
    if !path.starts_with("/cdn") {
        // As the hub does: the answer describes the file and points to where the bytes are.
        let mut digest = Digest::default().bytes(weights).hex();
        if manner == Manner::WrongDigest {
            digest.replace_range(..1, if digest.starts_with('0') { "1" } else { "0" });
        }
        let about =
            format!("X-Linked-Size: {}\r\nX-Linked-Etag: \"{digest}\"\r\nLocation: /cdn{path}\r\n", weights.len());
        return write!(stream, "HTTP/1.1 302 Found\r\n{about}Content-Length: 0\r\n{close}");
    }
    let start = if manner == Manner::NoRanges { 0 } else { range };
    let mut body = weights[start..].to_vec();
    if manner == Manner::TooMuch {
        body.push(0);
    }
    if start > 0 {
        let about = format!("Content-Range: bytes {start}-{}/{}\r\n", weights.len() - 1, weights.len());
        write!(stream, "HTTP/1.1 206 Partial Content\r\n{about}Content-Length: {}\r\n{close}", body.len())?;
    } else {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}", body.len())?;
    }
    if cuts.load(Ordering::Relaxed) > 0 {
        cuts.fetch_sub(1, Ordering::Relaxed);
        body.truncate(body.len() / 2);
    }
    stream.write_all(&body)
}

fn weights() -> Vec<u8> {
    safetensors(&tensors(&small()), Precision::F32)
}

fn fetch(server: &Server, dir: &TempDir) -> crate::Result<(u64, u64)> {
    let mut last = (0, 0);
    let model = known("ViT-B-16/openai").unwrap();
    hub::fetch(model, dir.path(), &server.url, &mut |done, total| last = (done, total.unwrap_or(0)))?;
    Ok(last)
}

fn file(dir: &TempDir, name: &str) -> std::path::PathBuf {
    dir.path().join("ViT-B-16/openai").join(name)
}

#[test]
fn a_fetched_model_is_found_by_its_name_and_not_fetched_again() {
    let (server, dir) = (serve(weights(), Manner::Good), TempDir::new().unwrap());
    let total = weights().len() as u64;
    assert_eq!(fetch(&server, &dir).unwrap(), (total, total));
    let places = Places { model_dir: Some(dir.path().to_path_buf()), hub_cache: None };
    assert_eq!(resolve("ViT-B-16/openai", &places).unwrap().hash().unwrap(), small().hash().unwrap());
    let asked = server.log.lock().unwrap().len();
    fetch(&server, &dir).unwrap();
    assert_eq!(server.log.lock().unwrap().len(), asked);
    let first = server.log.lock().unwrap()[0].clone();
    assert_eq!(first, "HEAD /timm/vit_base_patch16_clip_224.openai/resolve/main/open_clip_config.json 0");
}

#[test]
fn an_interrupted_download_goes_on_where_it_stopped() {
    let (server, dir) = (serve(weights(), Manner::CutsOnce), TempDir::new().unwrap());
    let error = fetch(&server, &dir).unwrap_err().to_string();
    assert!(error.contains("run it again"), "{error}");
    assert!(!file(&dir, "open_clip_model.safetensors").exists());
    let have = std::fs::metadata(file(&dir, "open_clip_model.safetensors.part")).unwrap().len();
    assert_eq!(have, weights().len() as u64 / 2);
    fetch(&server, &dir).unwrap();
    assert_eq!(std::fs::read(file(&dir, "open_clip_model.safetensors")).unwrap(), weights());
    assert!(server.log.lock().unwrap().last().unwrap().ends_with(&format!(" {have}")));
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let (server, dir) = (serve(weights(), Manner::NoRanges), TempDir::new().unwrap());
    std::fs::create_dir_all(file(&dir, "")).unwrap();
    std::fs::write(file(&dir, "open_clip_model.safetensors.part"), &weights()[..1000]).unwrap();
    fetch(&server, &dir).unwrap();
    assert_eq!(std::fs::read(file(&dir, "open_clip_model.safetensors")).unwrap(), weights());
}

#[test]
fn wrong_content_is_never_kept() {
    for (manner, word) in
        [(Manner::WrongDigest, "SHA-256"), (Manner::TooMuch, "more than"), (Manner::Missing, "neither")]
    {
        let (server, dir) = (serve(weights(), manner), TempDir::new().unwrap());
        let error = fetch(&server, &dir).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&server.url), "{error}");
        assert!(!file(&dir, "open_clip_model.safetensors").exists());
        assert!(!file(&dir, "open_clip_model.safetensors.part").exists());
    }
    // The leftover of another version: too long, or with another beginning.
    let (server, dir) = (serve(weights(), Manner::Good), TempDir::new().unwrap());
    std::fs::create_dir_all(file(&dir, "")).unwrap();
    std::fs::write(file(&dir, "open_clip_model.safetensors.part"), vec![7; 1000]).unwrap();
    assert!(fetch(&server, &dir).unwrap_err().to_string().contains("was removed"));
    fetch(&server, &dir).unwrap();
}

#[test]
fn an_unreachable_server_is_an_error_that_says_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = Server { url, log: Arc::default() };
    let error = fetch(&server, &TempDir::new().unwrap()).unwrap_err();
    assert_eq!(error.code(), "model.fetch");
    assert!(error.to_string().contains("model folder"), "{error}");
}
