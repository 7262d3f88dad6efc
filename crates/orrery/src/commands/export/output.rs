//! The output of an export: items, one after the other, and the position that goes with them.
//!
//! The position is saved after what it counts is on disk. Going on cuts the output back to the position, so a run that was
//! killed in the middle of a page leaves no item twice.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::read::PageRead;
use super::strip::write_without_system_properties;
use super::{Format, Position, RangePosition};
use crate::position::PositionFile;

const BUFFER_BYTES: usize = 1 << 18;

#[derive(Debug)]
pub struct Output {
    sink: Sink,
    strip: bool,
    position: Position,
    file: PositionFile,
}

#[derive(Debug)]
enum Sink {
    File(BufWriter<File>),
    Standard(BufWriter<std::io::Stdout>),
}

/// The part of a feed's envelope that is wanted.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "Documents")]
    items: Vec<&'a RawValue>,
}

impl Output {
    pub fn open(path: Option<&PathBuf>, strip: bool, position: Position, file: PositionFile) -> Result<Output> {
        let sink = match path {
            Some(path) => Sink::File(BufWriter::with_capacity(BUFFER_BYTES, open(path, position.bytes)?)),
            None => Sink::Standard(BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout())),
        };
        Ok(Output {
            sink,
            strip,
            position,
            file,
        })
    }

    pub fn ranges_left(&self) -> Vec<(usize, RangePosition)> {
        let ranges = self.position.ranges.iter().cloned().enumerate();
        ranges.filter(|(_, range)| !range.done).collect()
    }

    pub fn n_items(&self) -> u64 {
        self.position.items
    }

    pub fn write(&mut self, page: &PageRead) -> Result<()> {
        let envelope: Envelope<'_> = serde_json::from_slice(&page.body).context("the server's page is not a feed")?;
        let mut text = Vec::with_capacity(page.body.len());
        for item in &envelope.items {
            let is_first = self.position.items == 0;
            text.extend_from_slice(match self.position.format {
                Format::Ndjson => b"",
                Format::Json if is_first => b"[\n",
                Format::Json => b",\n",
            });
            if self.strip {
                write_without_system_properties(item, &mut text)?;
            } else {
                text.extend_from_slice(item.get().as_bytes());
            }
            if self.position.format == Format::Ndjson {
                text.push(b'\n');
            }
            self.position.items += 1;
        }
        self.put(&text)?;
        let range = &mut self.position.ranges[page.range_idx];
        range.continuation.clone_from(&page.continuation);
        range.done = page.continuation.is_none();
        if self.file.is_due() { self.save() } else { Ok(()) }
    }

    /// Ends the output if every range is done; saves the position in any case.
    pub fn finish(mut self) -> Result<u64> {
        if !self.position.complete && self.position.ranges.iter().all(|range| range.done) {
            self.put(match self.position.format {
                Format::Ndjson => b"",
                Format::Json if self.position.items == 0 => b"[]\n",
                Format::Json => b"\n]\n",
            })?;
            self.position.complete = true;
        }
        self.save()?;
        Ok(self.position.items)
    }

    pub fn save(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Standard(out) => out.flush().context("cannot write to standard output")?,
            Sink::File(out) => {
                out.flush()
                    .and_then(|()| out.get_ref().sync_data())
                    .context("cannot write the output")?;
            }
        }
        self.file.save(&self.position)
    }

    fn put(&mut self, text: &[u8]) -> Result<()> {
        match &mut self.sink {
            Sink::Standard(out) => out.write_all(text).context("cannot write to standard output")?,
            Sink::File(out) => out.write_all(text).context("cannot write the output")?,
        }
        self.position.bytes += text.len() as u64;
        Ok(())
    }
}

/// Opens the file and cuts it back to what the position knows of.
fn open(path: &Path, n_bytes: u64) -> Result<File> {
    let shown = path.display();
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let mut file = opened.with_context(|| format!("cannot write {shown}"))?;
    let found = file.metadata()?.len();
    ensure!(
        found >= n_bytes,
        "{shown} has {found} bytes but the position file knows of {n_bytes}"
    );
    file.set_len(n_bytes)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}
