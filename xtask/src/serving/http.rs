//! A plain HTTP client that takes little of the machine that it shares with the server.

use anyhow::{Context as _, Result, bail, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A connection that is used again and again.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

/// Nothing here takes longer than a deadline of the server.
const PATIENCE: Duration = Duration::from_secs(60);

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        self.stream.get_mut().write_all(request)?;
        self.read()
    }

    /// Reads one answer.
    fn read(&mut self) -> Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut answer =
            Answer { status: status.with_context(|| format!("no status in {first:?}"))?, ..Answer::default() };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').with_context(|| format!("no header: {line:?}"))?;
            answer.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        if answer.status == 204 {
            return Ok(answer);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut answer.body)?;
        } else if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse()?];
            self.stream.read_exact(&mut answer.body)?;
        } else {
            self.stream.read_to_end(&mut answer.body)?;
        }
        Ok(answer)
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Result<()> {
        loop {
            let size = usize::from_str_radix(self.line()?.trim(), 16)?;
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            ensure!(self.line()?.is_empty(), "a chunk does not end");
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("the connection was closed");
        }
        Ok(line.trim_end().to_owned())
    }
}

pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    Connection::open(address)?.ask(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
}

/// A form of fields and images.
pub fn post_form(path: &str, fields: &[(&str, &str)], images: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(format!("--xx\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    for image in images {
        body.extend(b"--xx\r\ncontent-disposition: form-data; name=\"image\"; filename=\"x\"\r\n\r\n");
        body.extend(*image);
        body.extend(b"\r\n");
    }
    body.extend(b"--xx--\r\n");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\ncontent-type: multipart/form-data; boundary=xx\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}
