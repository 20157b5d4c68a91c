//! Protection against requests of foreign web pages. A page of another site can send requests to this machine and, with DNS
//! rebinding, read the responses. So the `Host` and `Origin` headers must name this server.

use crate::{Config, Problem};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use std::net::IpAddr;

/// Refuses foreign `Host` and `Origin` headers. If the server listens for other machines, only configured names are checked.
pub(crate) fn check(config: &Config, headers: &HeaderMap) -> Result<(), Problem> {
    let is_local = config.bind.ip().is_loopback();
    let host = text(headers, &header::HOST);
    if (is_local || !config.allowed_hosts.is_empty())
        && let Some(host) = host
        && !is_allowed_host(config, host)
    {
        let message = format!("the name {:?} is not one of this server", shown(host));
        return Err(Problem::new(StatusCode::FORBIDDEN, "request.host", message)
            .with_hint("reach it as localhost, or add the name to allowed_hosts of its configuration"));
    }
    if (is_local || !config.allowed_origins.is_empty())
        && let Some(origin) = text(headers, &header::ORIGIN)
        && !is_allowed_origin(config, origin, host)
    {
        let message = format!("pages of {:?} may not send requests here", shown(origin));
        return Err(Problem::new(StatusCode::FORBIDDEN, "request.origin", message)
            .with_hint("add the origin to allowed_origins of the server's configuration"));
    }
    Ok(())
}

/// The text of a header; a value that is not text is refused like a foreign one.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn shown(value: &str) -> String {
    value.chars().take(100).collect()
}

fn is_allowed_host(config: &Config, host: &str) -> bool {
    let name = without_port(host);
    is_local_name(name) || config.allowed_hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_local_name(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let lower = bare.to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether an origin is the server's own page (same authority as the request) or an allowed one.
fn is_allowed_origin(config: &Config, origin: &str, host: Option<&str>) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let is_own = authority.is_some_and(|authority| host.is_some_and(|host| host.eq_ignore_ascii_case(authority)));
    is_own || config.allowed_origins.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(config: &Config, host: &str, origin: Option<&str>) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(config, &headers).err().map_or("", |problem| problem.code)
    }

    #[test]
    fn only_our_names_and_our_page_reach_a_local_server() {
        let local = Config::default();
        for host in
            ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "localhost", "[::1]", "LOCALHOST:1", "a.localhost"]
        {
            assert_eq!(code(&local, host, None), "", "{host}");
            assert_eq!(code(&local, host, Some(&format!("http://{host}"))), "", "{host}");
        }
        for host in ["evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example", "x", ""] {
            assert_eq!(code(&local, host, None), "request.host", "{host}");
        }
        for origin in ["http://evil.example", "null", "http://localhost:3000", "https://127.0.0.1"] {
            assert_eq!(code(&local, "localhost:8080", Some(origin)), "request.origin", "{origin}");
        }
        assert!(check(&local, &HeaderMap::new()).is_ok(), "a request without a name is no browser's");
    }

    #[test]
    fn it_can_be_configured_and_an_open_server_is_reached_by_any_name() {
        let named = Config {
            allowed_hosts: vec!["clip.example".into()],
            allowed_origins: vec!["https://app.example".into()],
            ..Config::default()
        };
        assert_eq!(code(&named, "clip.example:443", Some("https://app.example")), "");
        assert_eq!(code(&named, "other.example", None), "request.host");
        let all = Config { allowed_hosts: vec!["*".into()], allowed_origins: vec!["*".into()], ..Config::default() };
        assert_eq!(code(&all, "any.example", Some("null")), "");
        let open = Config { bind: "0.0.0.0:80".parse().unwrap(), ..Config::default() };
        assert_eq!(code(&open, "any.example", Some("http://other.example")), "");
    }
}
