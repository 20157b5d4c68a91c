//! Requests to the hub and to the servers it redirects to.

use super::lock::LockedFile;
use super::{Hub, Progress};
use crate::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::Path;
use std::time::Duration;
use ureq::http::{Response, Uri};
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder};

/// The largest known model has 2 GB.
const MAX_BYTES: u64 = 64 << 30;
const MAX_REDIRECTS: usize = 10;

/// Why a download failed.
pub(super) enum Failure {
    /// Temporary: retry, after the time that the server requests, if any.
    Passing { reason: String, after: Option<Duration> },
    /// No connection: no network, unknown host, or connection refused.
    NoConnection { reason: String },
    /// Permanent: do not retry.
    Final(Error),
}

impl Failure {
    pub(super) fn passing(reason: impl Into<String>) -> Self {
        Self::Passing { reason: reason.into(), after: None }
    }

    pub(super) fn fetch(url: &str, reason: impl Into<String>) -> Self {
        Self::Final(Error::Fetch { url: url.to_owned(), reason: reason.into() })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// What the hub reports before the download.
pub(super) struct Expected {
    pub(super) file: LockedFile,
    /// The commit of the repository.
    pub(super) revision: Option<String>,
}

pub(super) struct Client {
    agent: Agent,
    endpoint: Option<Uri>,
    token: Option<String>,
}

impl Client {
    pub(super) fn new(hub: &Hub) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // Redirects are followed here: the token must not be sent to other hosts.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("flatclip/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(30)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .build()
            .into();
        Self { agent, endpoint: hub.endpoint.parse().ok(), token: hub.token.clone() }
    }

    /// Only the endpoint itself (same scheme, host and port) gets the token.
    fn send(&self, mut request: RequestBuilder<WithoutBody>, url: &Uri) -> Result<Response<Body>, Failure> {
        let is_endpoint = |own: &Uri| own.scheme() == url.scheme() && own.authority() == url.authority();
        if let Some(token) = self.token.as_ref().filter(|_| self.endpoint.as_ref().is_some_and(is_endpoint)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|e| unreachable(&e))
    }

    /// The hub's response with size and digest; `None` if it has no such file.
    pub(super) fn expected(&self, url: &str) -> Result<Option<Expected>, Failure> {
        let target: Uri = url.parse().map_err(|_| Failure::fetch(url, "is not an address"))?;
        let response = self.send(self.agent.head(&target), &target)?;
        match response.status().as_u16() {
            404 => return Ok(None),
            200..=399 => {}
            _ => return Err(refused(url, &response)),
        }
        let header = |name: &str| header(&response, name);
        let plain = response.status() == 200;
        // Large files are described by `x-linked-*` headers, others by the response's own headers.
        let size = header("x-linked-size").or_else(|| header("content-length").filter(|_| plain));
        let tag = header("x-linked-etag").or_else(|| header("etag").filter(|_| plain));
        let tag = tag.filter(|tag| !tag.starts_with("W/")).map(|tag| tag.trim_matches('"').to_ascii_lowercase());
        let is_hex = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
        let size = size.and_then(|size| size.parse().ok());
        if let Some(size) = size.filter(|size| *size > MAX_BYTES) {
            let (what, hint) = (format!("{url}: bytes"), "no known model is that large".into());
            return Err(Failure::Final(Error::Limit { what, asked: size, allowed: MAX_BYTES, hint }));
        }
        let sha256 = tag.clone().filter(|tag| is_hex(tag, 64));
        let revision = header("x-repo-commit").filter(|commit| is_hex(commit, 40)).map(str::to_owned);
        Ok(Some(Expected { file: LockedFile { size, sha256, etag: tag, complete: false }, revision }))
    }

    /// Resumes the download of `part` until the file is complete.
    pub(super) fn download(
        &self,
        url: &str,
        part: &Path,
        expected: &Expected,
        progress: Progress<'_>,
    ) -> Result<(), Failure> {
        let io = |e: std::io::Error| Failure::Final(Error::io(part)(e));
        let mut have = std::fs::metadata(part).map_or(0, |about| about.len());
        if expected.file.size.is_some_and(|size| have > size) {
            have = 0;
        }
        if have > 0 && expected.file.size == Some(have) {
            return Ok(());
        }
        let response = self.get(url, have)?;
        let status = response.status().as_u16();
        let (file, start) = match status {
            206 if resumes_at(&response, have, expected.file.size) => {
                (OpenOptions::new().append(true).open(part), have)
            }
            // A server without range support sends the whole file.
            200 => (File::create(part), 0),
            // A range that was not requested, or not satisfiable: start from the beginning next time.
            206 | 416 => {
                super::discard(part)?;
                return Err(Failure::passing("the server sent another part of the file than it was asked for"));
            }
            _ => return Err(refused(url, &response)),
        };
        if header(&response, "content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            return Err(Failure::fetch(url, "the server sent an HTML page instead of the file"));
        }
        let stated = header(&response, "content-length").and_then(|n| n.parse::<u64>().ok()).map(|n| n + start);
        let Some(size) = expected.file.size.or(stated) else {
            return Err(Failure::fetch(url, "the server does not say how large the file is"));
        };
        if size > MAX_BYTES {
            return Err(Failure::fetch(url, format!("{size} bytes are more than any known model has")));
        }
        let mut file = file.map_err(io)?;
        // Read one byte more than expected to detect a file that is too long; it is never stored.
        let body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut body = body.take(size.saturating_sub(start).saturating_add(1));
        let mut buffer = vec![0; 1 << 16];
        let mut done = start;
        loop {
            let count = body.read(&mut buffer).map_err(|e| interrupted(done, size, &e.to_string()))?;
            if count == 0 {
                break;
            }
            file.write_all(&buffer[..count]).map_err(io)?;
            done += count as u64;
            progress(done, Some(size));
        }
        file.sync_all().map_err(io)?;
        if done > size {
            super::discard(part)?;
            return Err(Failure::passing(format!("the server sent more than the {size} bytes that it states")));
        }
        if done < size { Err(interrupted(done, size, "the connection ended")) } else { Ok(()) }
    }

    /// Follows redirects; the token is sent to the endpoint only, and redirects from HTTPS to HTTP are refused.
    fn get(&self, url: &str, from: u64) -> Result<Response<Body>, Failure> {
        let mut target: Uri = url.parse().map_err(|_| Failure::fetch(url, "is not an address"))?;
        for _ in 0..MAX_REDIRECTS {
            // With compression, byte ranges would not refer to the file.
            let mut request = self.agent.get(&target).header("accept-encoding", "identity");
            if from > 0 {
                request = request.header("range", format!("bytes={from}-"));
            }
            let response = self.send(request, &target)?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = header(&response, "location").unwrap_or_default();
            let next = redirected(&target, location)
                .ok_or_else(|| Failure::fetch(url, "the server points to something that is not an address"))?;
            if target.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(Failure::fetch(url, "the server points from HTTPS to an address without it"));
            }
            target = next;
        }
        Err(Failure::fetch(url, format!("more than {MAX_REDIRECTS} redirects")))
    }
}

/// An absolute address, or a path on the same server.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    if location.starts_with('/') && !location.starts_with("//") {
        return format!("{}://{}{location}", from.scheme_str()?, from.authority()?).parse().ok();
    }
    location.parse().ok().filter(|next: &Uri| matches!(next.scheme_str(), Some("http" | "https")))
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Whether `bytes FROM-TO/SIZE` has the expected start and size.
fn resumes_at(response: &Response<Body>, have: u64, size: Option<u64>) -> bool {
    let range = header(response, "content-range").and_then(|range| range.strip_prefix("bytes "));
    let Some((place, total)) = range.and_then(|range| range.split_once('/')) else { return false };
    let starts = place.split_once('-').and_then(|(from, _)| from.parse().ok()) == Some(have);
    let fits = size.is_none_or(|size| total == "*" || total.parse() == Ok(size));
    have > 0 && starts && fits
}

fn interrupted(done: u64, size: u64, why: &str) -> Failure {
    Failure::passing(format!("interrupted after {done} of {size} bytes ({why}); run it again, it goes on from there"))
}

fn unreachable(error: &ureq::Error) -> Failure {
    let reason = format!("{error}; without a network, put the files into the model folder yourself");
    if is_no_connection(error) { Failure::NoConnection { reason } } else { Failure::passing(reason) }
}

fn is_no_connection(error: &ureq::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable};
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::ConnectProxyFailed(_) => true,
        ureq::Error::Timeout(stage) => matches!(stage, ureq::Timeout::Resolve | ureq::Timeout::Connect),
        ureq::Error::Io(error) => {
            // A failed name resolution has no specific error kind.
            let is_lookup = error.to_string().contains("lookup address information");
            is_lookup || matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkDown | NetworkUnreachable)
        }
        _ => false,
    }
}

/// The failure for an error status. Overload is temporary; the server may say when to retry.
fn refused(url: &str, response: &Response<Body>) -> Failure {
    let status = response.status().as_u16();
    let reason = format!("the server answered {status}");
    match status {
        408 | 429 | 500..=599 => {
            let after = header(response, "retry-after").and_then(|seconds| seconds.parse().ok());
            Failure::Passing { reason, after: after.map(Duration::from_secs) }
        }
        401 | 403 => Failure::fetch(url, format!("{reason}; the repository may need a token")),
        _ => Failure::fetch(url, reason),
    }
}
