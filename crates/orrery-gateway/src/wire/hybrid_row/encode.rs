//! Writing the results of batches.

use super::{RECORD_SCHEMA, RESULT_SCHEMA, RowResult, SEGMENT_SCHEMA, VERSION, type_code};

/// Writes a stream with one record per result, in order.
pub fn encode(results: &[RowResult<'_>]) -> Vec<u8> {
    const RECORD_BYTES: usize = 96;
    let n_body_bytes: usize = results.iter().map(|result| result.body.map_or(0, <[u8]>::len)).sum();
    let mut out = Vec::with_capacity(RECORD_BYTES * results.len() + n_body_bytes);
    segment_header(&mut out);
    let mut row = Vec::new();
    for result in results {
        row.clear();
        result_row(result, &mut row);
        row_start(RECORD_SCHEMA, &mut out);
        let n_bytes = i32::try_from(row.len()).expect("an answer is far below 2 GiB");
        out.extend_from_slice(&n_bytes.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&row).to_le_bytes());
        out.extend_from_slice(&row);
    }
    out
}

fn segment_header(out: &mut Vec<u8>) {
    row_start(SEGMENT_SCHEMA, out);
    out.push(0b1);
    out.extend_from_slice(&10i32.to_le_bytes());
}

fn row_start(schema: i32, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&schema.to_le_bytes());
}

/// Status, sub-status, tag and body have a bit each in the mask; retry time and charge are sparse columns behind them.
fn result_row(result: &RowResult<'_>, out: &mut Vec<u8>) {
    const RETRY_AFTER_TOKEN: u8 = 5;
    const REQUEST_CHARGE_TOKEN: u8 = 6;
    row_start(RESULT_SCHEMA, out);
    let bits = [
        true,
        result.sub_status != 0,
        result.etag.is_some(),
        result.body.is_some(),
    ];
    out.push(bits.iter().rev().fold(0, |mask, bit| mask << 1 | u8::from(*bit)));
    out.extend_from_slice(&i32::from(result.status).to_le_bytes());
    if result.sub_status != 0 {
        out.extend_from_slice(&result.sub_status.to_le_bytes());
    }
    if let Some(etag) = result.etag {
        variable(etag.as_bytes(), out);
    }
    if let Some(body) = result.body {
        variable(body, out);
    }
    if let Some(milliseconds) = result.retry_after_ms {
        out.extend_from_slice(&[type_code::UINT32, RETRY_AFTER_TOKEN]);
        out.extend_from_slice(&milliseconds.to_le_bytes());
    }
    if let Some(charge) = result.charge {
        out.extend_from_slice(&[type_code::FLOAT64, REQUEST_CHARGE_TOKEN]);
        out.extend_from_slice(&charge.to_le_bytes());
    }
}

fn variable(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes.len();
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(bytes);
}
