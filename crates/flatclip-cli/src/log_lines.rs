//! Progress where there is no terminal: a plain line at intervals, so that the log of a job shows its progress.

use indicatif::TermLike;
use std::io::{self, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two lines. Shorter work prints none.
const EVERY: Duration = Duration::from_secs(60);

/// A target of a progress bar that keeps the bar's last line and writes it when enough time has gone by.
#[derive(Debug)]
pub(crate) struct LogLines(Mutex<State>);

#[derive(Debug)]
struct State {
    written: Instant,
    line: String,
}

impl State {
    /// The line, when it is due.
    fn due(&mut self, now: Instant) -> Option<&str> {
        let line = self.line.trim();
        if line.is_empty() || now.duration_since(self.written) < EVERY {
            return None;
        }
        self.written = now;
        Some(line)
    }
}

impl LogLines {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { written: Instant::now(), line: String::new() }))
    }
}

impl TermLike for LogLines {
    fn width(&self) -> u16 {
        200
    }

    /// A bar draws itself in pieces: its text, then spaces up to the width.
    fn write_str(&self, text: &str) -> io::Result<()> {
        if !text.trim().is_empty()
            && let Ok(mut state) = self.0.lock()
        {
            text.clone_into(&mut state.line);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        match self.0.lock() {
            Ok(mut state) => state.due(Instant::now()).map_or(Ok(()), |line| writeln!(io::stderr().lock(), "{line}")),
            Err(_) => Ok(()),
        }
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_up(&self, _lines: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _lines: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _columns: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _columns: usize) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_once_per_interval_and_never_empty() {
        let start = Instant::now();
        let mut state = State { written: start, line: String::new() };
        assert_eq!(state.due(start + EVERY), None);
        state.line = "images 7/200 ".to_owned();
        assert_eq!(state.due(start + EVERY / 2), None);
        assert_eq!(state.due(start + EVERY), Some("images 7/200"));
        assert_eq!(state.due(start + EVERY + EVERY / 2), None);
        assert_eq!(state.due(start + 2 * EVERY), Some("images 7/200"));
    }

    #[test]
    fn spaces_that_fill_a_line_do_not_replace_its_text() {
        let lines = LogLines::new();
        for text in ["\r", "images 8/200", "      "] {
            lines.write_str(text).unwrap();
        }
        assert_eq!(lines.0.lock().unwrap().line, "images 8/200");
    }
}
