//! Downloads from a local server that works correctly or simulates faults.

use super::forge::{safetensors, small, tensors};
use crate::digest::Digest;
use crate::weights::hub::{self, Hub};
use crate::weights::{Places, known, resolve};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const WEIGHTS: &str = "open_clip_model.safetensors";
const PART: &str = "open_clip_model.safetensors.part";

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
    /// Is overloaded three times.
    Overloaded,
    /// Answers a range with another one, once.
    WrongRange,
    /// Sends a page of the same length instead of the file, and states no digest.
    Page,
    /// Sends the file, and states its size only.
    NoDigest,
}

struct Server {
    url: String,
    /// Method, path and range of every request.
    log: Arc<Mutex<Vec<String>>>,
}

/// A free port, and the server of its address.
fn listen() -> (TcpListener, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, Server { url, log: Arc::default() })
}

fn serve(weights: Vec<u8>, manner: Manner) -> Server {
    let (listener, server) = listen();
    let seen = server.log.clone();
    // Ends with the test process: the listener is never closed, and the thread never joined.
    std::thread::spawn(move || {
        let cuts = AtomicUsize::new(match manner {
            Manner::CutsOnce | Manner::WrongRange => 1,
            Manner::Overloaded => 3,
            _ => 0,
        });
        for stream in listener.incoming() {
            let _ = answer(stream.unwrap(), &weights, manner, &cuts, &seen);
        }
    });
    server
}

fn answer(
    mut stream: TcpStream,
    weights: &[u8],
    manner: Manner,
    cuts: &AtomicUsize,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let (mut range, mut token) = (0, "");
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some(from) = line.strip_prefix("range: bytes=") {
            range = from.trim().trim_end_matches('-').parse().unwrap();
        }
        if line.starts_with("authorization: bearer") {
            token = " token";
        }
        if line.is_empty() {
            break;
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    log.lock().unwrap().push(format!("{method} {path} {range}{token}"));
    let takes_turn = || cuts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
    let mut send = |status: &str, headers: &str, body: &[u8]| {
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
        let sent =
            if manner == Manner::CutsOnce && path.starts_with("/cdn") && takes_turn() { length / 2 } else { length };
        if method == "GET" { stream.write_all(&body[..sent]) } else { Ok(()) }
    };
    if path.ends_with("open_clip_config.json") {
        return send("200 OK", "", br#"{"model_cfg": {"quick_gelu": true}}"#);
    }
    if !path.ends_with("open_clip_model.safetensors") || manner == Manner::Missing {
        return send("404 Not Found", "", b"");
    }
    if manner == Manner::Overloaded && takes_turn() {
        return send("503 Busy", "Retry-After: 0\r\n", b"");
    }
    match manner {
        Manner::Page => return send("200 OK", "", &[b"\n<!DOCTYPE html>", &weights[16..]].concat()),
        Manner::NoDigest => return send("200 OK", "", weights),
        _ => {}
    }
    if !path.starts_with("/cdn") {
        // As the hub does: the answer describes the file and points to where the bytes are.
        let mut digest = Digest::default().bytes(weights).hex();
        if manner == Manner::WrongDigest {
            digest.replace_range(..1, if digest.starts_with('0') { "1" } else { "0" });
        }
        let size = weights.len();
        let about = format!("X-Linked-Size: {size}\r\nX-Linked-Etag: \"{digest}\"\r\nLocation: /cdn{path}\r\n");
        return send("302 Found", &about, b"");
    }
    let start = match manner {
        Manner::NoRanges => 0,
        Manner::WrongRange if range > 0 && takes_turn() => range + 1,
        _ => range,
    };
    let mut body = weights[start..].to_vec();
    if manner == Manner::TooMuch {
        body.push(0);
    }
    if start > 0 {
        let about = format!("Content-Range: bytes {start}-{}/{}\r\n", weights.len() - 1, weights.len());
        return send("206 Partial Content", &about, &body);
    }
    send("200 OK", "", &body)
}

fn weights() -> Vec<u8> {
    safetensors(&tensors(&small()))
}

/// Fetches what the server has.
fn fetch_all(server: &Server, dir: &TempDir) {
    fetch(server, dir).unwrap();
    assert_eq!(std::fs::read(file(dir, WEIGHTS)).unwrap(), weights());
}

fn fetch(server: &Server, dir: &TempDir) -> crate::Result<(u64, u64)> {
    fetch_with(server, dir, 3)
}

fn fetch_with(server: &Server, dir: &TempDir, retries: u32) -> crate::Result<(u64, u64)> {
    let mut last = (0, 0);
    let model = known("ViT-B-16/openai").unwrap();
    let mut hub = Hub::from(server.url.as_str()).with_token("secret-token");
    (hub.retries, hub.first_wait) = (retries, std::time::Duration::from_millis(1));
    hub::fetch(model, dir.path(), hub, &mut |done, total| last = (done, total.unwrap_or(0)))?;
    Ok(last)
}

/// A partial file of an interrupted download whose version is in the lock file.
fn leave_part(server: &Server, dir: &TempDir, bytes: &[u8]) {
    fetch(server, dir).unwrap();
    let lock = file(dir, "flatclip.lock");
    let text = std::fs::read_to_string(&lock).unwrap().replace("\"complete\": true", "\"complete\": false");
    std::fs::write(lock, text).unwrap();
    std::fs::remove_file(file(dir, WEIGHTS)).unwrap();
    std::fs::write(file(dir, PART), bytes).unwrap();
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
    assert_eq!(first, "HEAD /timm/vit_base_patch16_clip_224.openai/resolve/main/open_clip_config.json 0 token");
    // A file that was damaged since is an error.
    std::fs::write(file(&dir, WEIGHTS), &weights()[..5000]).unwrap();
    assert!(fetch(&server, &dir).unwrap_err().to_string().contains("has 5000 bytes"));
}

#[test]
fn an_interrupted_download_goes_on_where_it_stopped() {
    let (server, dir) = (serve(weights(), Manner::CutsOnce), TempDir::new().unwrap());
    let error = fetch_with(&server, &dir, 0).unwrap_err().to_string();
    assert!(error.contains("run it again"), "{error}");
    assert!(!file(&dir, WEIGHTS).exists());
    let have = std::fs::metadata(file(&dir, PART)).unwrap().len();
    assert_eq!(have, weights().len() as u64 / 2);
    fetch_all(&server, &dir);
    assert!(server.log.lock().unwrap().last().unwrap().contains(&format!(" {have}")));
    // The same in one go.
    let (server, dir) = (serve(weights(), Manner::CutsOnce), TempDir::new().unwrap());
    fetch_all(&server, &dir);
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let (server, dir) = (serve(weights(), Manner::NoRanges), TempDir::new().unwrap());
    leave_part(&server, &dir, &weights()[..1000]);
    fetch_all(&server, &dir);
}

#[test]
fn a_wrong_range_an_overload_and_an_unfitting_part_pass() {
    let right = weights();
    let (server, dir) = (serve(weights(), Manner::WrongRange), TempDir::new().unwrap());
    leave_part(&server, &dir, &right[..1000]);
    fetch_all(&server, &dir);
    let (server, dir) = (serve(weights(), Manner::Overloaded), TempDir::new().unwrap());
    assert!(fetch_with(&server, &dir, 2).unwrap_err().to_string().contains("503"));
    fetch_all(&server, &dir);
    // Of an unknown version (no lock file): removed before the download. Of this version, but damaged: removed after it.
    let (server, dir) = (serve(weights(), Manner::Good), TempDir::new().unwrap());
    std::fs::create_dir_all(file(&dir, "")).unwrap();
    std::fs::write(file(&dir, PART), vec![7; 1000]).unwrap();
    fetch_with(&server, &dir, 0).unwrap();
    let damaged: Vec<u8> = right[..5000].iter().enumerate().map(|(i, b)| b ^ u8::from(i == 4999)).collect();
    leave_part(&server, &dir, &damaged);
    fetch_all(&server, &dir);
}

#[test]
fn wrong_content_is_never_kept() {
    for (manner, word) in [
        (Manner::WrongDigest, "SHA-256"),
        (Manner::TooMuch, "more than"),
        (Manner::Missing, "neither"),
        (Manner::Page, "HTML page"),
    ] {
        let (server, dir) = (serve(weights(), manner), TempDir::new().unwrap());
        let error = fetch(&server, &dir).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&server.url), "{error}");
        assert!(!file(&dir, WEIGHTS).exists() && !file(&dir, PART).exists());
    }
}

#[test]
fn a_file_that_changes_on_the_hub_is_refused() {
    let mut other = tensors(&small());
    other.get_mut("logit_scale").unwrap().1[0] += 1.0;
    let other = safetensors(&other);
    for manner in [Manner::Good, Manner::NoDigest] {
        let (server, dir) = (serve(weights(), manner), TempDir::new().unwrap());
        fetch(&server, &dir).unwrap();
        std::fs::remove_file(file(&dir, WEIGHTS)).unwrap();
        let later = serve(other.clone(), manner);
        let error = fetch(&later, &dir).unwrap_err().to_string();
        assert!(error.contains("has changed on the hub") && error.contains("flatclip.lock"), "{error}");
        assert!(!file(&dir, WEIGHTS).exists() && !file(&dir, PART).exists());
        std::fs::remove_file(file(&dir, "flatclip.lock")).unwrap();
        fetch(&later, &dir).unwrap();
    }
}

#[test]
fn the_token_goes_to_the_endpoint_only_and_is_never_shown() {
    let (bytes, dir) = (serve(weights(), Manner::Good), TempDir::new().unwrap());
    // An endpoint whose files lie on another server.
    let (listener, server) = listen();
    let (to, size) = (bytes.url.clone(), weights().len());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let path = head[0].split_whitespace().nth(1).unwrap();
            let (status, about) = if path.ends_with(".safetensors") {
                ("302 Found", format!("X-Linked-Size: {size}\r\nLocation: {to}/cdn{path}\r\n"))
            } else {
                ("404 Not Found", String::new())
            };
            write!(stream, "HTTP/1.1 {status}\r\n{about}Content-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        }
    });
    fetch(&server, &dir).unwrap();
    let log = bytes.log.lock().unwrap().clone();
    assert!(!log.is_empty() && log.iter().all(|line| line.contains("/cdn") && !line.contains("token")), "{log:?}");
    let hub = Hub::default().with_token("secret-token");
    assert!(!format!("{hub:?}").contains("secret"), "{hub:?}");
}

#[test]
fn an_unreachable_server_is_an_error_that_says_what_to_do() {
    let (listener, server) = listen();
    drop(listener);
    let error = fetch(&server, &TempDir::new().unwrap()).unwrap_err();
    assert_eq!(error.code(), "model.fetch");
    assert!(error.to_string().contains("model folder"), "{error}");
    // Without a network the error comes at once, not after all retries.
    assert!(error.to_string().contains("(attempt 1)"), "{error}");
}

#[test]
fn a_server_that_was_reached_and_is_gone_is_tried_again() {
    let (listener, server) = listen();
    // The configuration only, asked for and fetched; then nobody listens any more.
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            answer(stream.unwrap(), &[], Manner::Good, &AtomicUsize::new(0), &Mutex::default()).unwrap();
        }
    });
    let error = fetch(&server, &TempDir::new().unwrap()).unwrap_err();
    thread.join().unwrap();
    assert!(error.to_string().contains("(attempt 4)"), "{error}");
}

/// Weights without their tokenizer would be read with CLIP's.
#[test]
fn a_model_with_its_own_tokenizer_is_not_fetched_without_it() {
    let (server, models) = (serve(Vec::new(), Manner::Good), TempDir::new().unwrap());
    let model = known("ViT-B-16-SigLIP2/webli").unwrap();
    let error = hub::fetch(model, models.path(), server.url.as_str(), &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("ViT-B-16-SigLIP2"), "{error}");
    let log = server.log.lock().unwrap();
    assert!(log.iter().any(|line| line.contains("tokenizer_config.json")), "{log:?}");
    assert!(!log.iter().any(|line| line.contains(WEIGHTS)), "{log:?}");
}
