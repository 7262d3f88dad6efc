//! The prompt: lines with editing and history, one page of rows at a time.

use std::io::BufRead as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use super::commands::{self, Next};
use super::session::{Session, WantsMore};
use super::splitter::{Piece, Splitter};

const HISTORY_LINES_MAX: usize = 5_000;

type Prompt = Editor<(), FileHistory>;

/// Talks until the user leaves.
pub async fn run(session: &mut Session) -> Result<()> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES_MAX)
        .context("the history has a size")?
        .auto_add_history(false)
        .build();
    let mut prompt: Prompt = Editor::with_config(config).context("cannot use this terminal")?;
    let history = history_file();
    if let Some(path) = &history {
        // There is none before the first time.
        let _ = prompt.load_history(path);
    }
    eprintln!("\\? lists what can be said besides SELECT, \\q leaves.");
    let talked = talk(session, &mut prompt).await;
    if let Some(path) = &history {
        save(&mut prompt, path);
    }
    talked
}

async fn talk(session: &mut Session, prompt: &mut Prompt) -> Result<()> {
    let mut splitter = Splitter::default();
    let mut typed = String::new();
    loop {
        // Blocks this thread only; the connection is served by another.
        let line = match prompt.readline(&greeting(session, splitter.is_pending())) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                splitter.clear();
                typed.clear();
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error).context("cannot read from this terminal"),
        };
        typed.push_str(&line);
        let pieces = splitter.line(&line);
        if splitter.is_pending() {
            typed.push('\n');
        } else {
            let _ = prompt.add_history_entry(std::mem::take(&mut typed));
        }
        for piece in pieces {
            match execute(session, piece).await {
                Ok(Next::Quit) => return Ok(()),
                Ok(Next::GoOn) => {}
                // At a prompt a failure is an answer like any other.
                Err(error) => eprintln!("{error:#}"),
            }
        }
    }
}

/// Runs one piece; Ctrl-C gives it up.
async fn execute(session: &mut Session, piece: Piece) -> Result<Next> {
    let work = async {
        match piece {
            Piece::Command(command) => commands::run(session, &command).await,
            Piece::Statement(statement) => {
                session.query(&statement, &mut AskAfterPage).await?;
                Ok(Next::GoOn)
            }
        }
    };
    tokio::select! {
        // A request that is given up leaves its connection closed, and the next one opens another.
        done = work => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("cannot listen for Ctrl-C")?;
            eprintln!("given up");
            Ok(Next::GoOn)
        }
    }
}

fn greeting(session: &Session, is_pending: bool) -> String {
    let place = session.target.as_ref().map_or_else(
        || "orrery".to_owned(),
        |target| format!("{}/{}", target.database, target.container),
    );
    format!("{place}{} ", if is_pending { "->" } else { "=>" })
}

/// Shows the next page when asked to.
struct AskAfterPage;

impl WantsMore for AskAfterPage {
    fn wants_more(&mut self) -> Result<bool> {
        eprint!("-- more: Enter, or q to stop -- ");
        let mut answer = String::new();
        let n_bytes = std::io::stdin()
            .lock()
            .read_line(&mut answer)
            .context("cannot read from this terminal")?;
        Ok(n_bytes > 0 && !answer.trim().eq_ignore_ascii_case("q"))
    }
}

/// Where the operating system wants such files.
fn history_file() -> Option<PathBuf> {
    let directory = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(directory.join("orrery").join("sql-history"))
}

fn save(prompt: &mut Prompt, path: &PathBuf) {
    let saved = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .map_err(ReadlineError::from)
        .and_then(|()| prompt.save_history(path));
    if let Err(error) = saved {
        eprintln!("the history was not kept: {error}");
    }
}
