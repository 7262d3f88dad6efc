use orrery_model::limits::BATCH_OPERATIONS_MAX;
use proptest::prelude::*;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

const SEGMENT: &[u8] = &[0x81, 0xF0, 0xD8, 0xFF, 0x7F, 0x01, 0x0A, 0, 0, 0];
const OPERATION: &[u8] = &[0x81, 0x70, 0x54, 0xE1, 0x7F];

/// A stream of these rows, as a client would write it.
fn stream(rows: &[Vec<u8>]) -> Vec<u8> {
    let mut out = SEGMENT.to_vec();
    for row in rows {
        out.extend([0x81, 0xF1, 0xD8, 0xFF, 0x7F]);
        out.extend((row.len() as u32).to_le_bytes());
        out.extend(crc32fast::hash(row).to_le_bytes());
        out.extend(row);
    }
    out
}

fn decode_rows(rows: &[Vec<u8>]) -> Result<Vec<RowOperation>, HybridRowError> {
    decode(&stream(rows).into())
}

fn row(parts: &[&[u8]]) -> Vec<u8> {
    [OPERATION, &parts.concat()].concat()
}

/// Mask, operation type and the item resource type.
fn head(mask: u8, kind: i32) -> Vec<u8> {
    [&[mask][..], &kind.to_le_bytes(), &2i32.to_le_bytes()].concat()
}

fn read_of(id: &str) -> Vec<u8> {
    row(&[&head(0b001_0011, 2), &[id.len() as u8], id.as_bytes()])
}

#[test]
fn a_result_is_written_as_the_client_expects_it() {
    let result = RowResult {
        status: 201,
        ..RowResult::default()
    };
    assert_eq!(
        hex(&encode(&[result])),
        "81F0D8FF7F010A00000081F1D8FF7F0A00000068BA7FB5817154E17F01C9000000"
    );
}

#[test]
fn every_column_of_a_result_is_written() {
    let result = RowResult {
        status: 429,
        sub_status: 3200,
        etag: Some("\"e\""),
        body: Some(b"{}"),
        retry_after_ms: Some(7),
        charge: Some(1.5),
    };
    let written = encode(&[result]);
    let row = &written[SEGMENT.len() + 13..];
    assert_eq!(
        hex(row),
        "817154E17F0FAD010000800C000003226522027B7D0B05070000001006000000000000F83F"
    );
    assert_eq!(
        written[SEGMENT.len() + 9..SEGMENT.len() + 13],
        crc32fast::hash(row).to_le_bytes()
    );
}

#[test]
fn results_of_a_batch_stand_in_order() {
    let body = vec![b'x'; 300];
    let results = [200, 404].map(|status| RowResult {
        status,
        body: Some(&body),
        ..RowResult::default()
    });
    let written = encode(&results);
    let row_bytes = 5 + 1 + 4 + 2 + 300;
    assert_eq!(written.len(), 10 + 2 * (13 + row_bytes));
    // 300 takes two bytes as a variable-length number.
    assert_eq!(written[10 + 13 + 10..10 + 13 + 12], [0xAC, 0x02]);
    assert_eq!(written[10 + 13 + row_bytes + 13 + 6], 0x94);
}

#[test]
fn a_batch_of_the_client_is_read() {
    let create = row(&[
        &head(0b100_0111, 0),
        &[5],
        b"[\"a\"]",
        &[10],
        b"{\"id\":\"1\"}",
        &[20, 9, 3],
        b"\"x\"",
        &[7, 11],
        &60i32.to_le_bytes(),
        &[3, 12],
    ]);
    let operations = decode_rows(&[create, read_of("item 2")]).unwrap();
    assert_eq!(
        operations[0],
        RowOperation {
            operation: RowOperationType::Create,
            id: None,
            partition_key: Some("[\"a\"]".to_owned()),
            body: Some(Bytes::from_static(b"{\"id\":\"1\"}")),
            if_match: Some("\"x\"".to_owned()),
            if_none_match: None,
            indexing_directive: None,
            ttl_seconds: Some(60),
            minimal: true,
        }
    );
    assert_eq!(
        (operations[1].operation, operations[1].id.as_deref()),
        (RowOperationType::Read, Some("item 2"))
    );
    assert_eq!(operations.len(), 2);
}

#[test]
fn all_operation_types_are_known() {
    use RowOperationType::*;
    for (number, kind) in [
        (0, Create),
        (1, Patch),
        (2, Read),
        (4, Delete),
        (5, Replace),
        (20, Upsert),
    ] {
        assert_eq!(decode_rows(&[row(&[&head(0b11, number)])]).unwrap()[0].operation, kind);
    }
    let error = decode_rows(&[row(&[&head(0b11, 3)])]).unwrap_err();
    assert_eq!(error.reason, "an operation's type is unknown");
}

#[test]
fn columns_that_mean_nothing_here_are_read_over() {
    let everything = row(&[
        &head(0b111_1111, 5),
        &[2],
        b"[]",
        &[3, 1, 2, 3],
        &[1],
        b"i",
        &[1, 9],
        &[2],
        b"{}",
        // A path of three bytes that no column has, an unsigned number, a double and a blob.
        &[20, 13 + 3],
        b"abc",
        &[1],
        b"v",
        &[11, 1, 0, 0, 0, 0],
        &[16, 2, 0, 0, 0, 0, 0, 0, 0, 0],
        &[21, 3, 1, 0],
        &[20, 10, 1],
        b"*",
        &[20, 8, 7],
        b"Include",
        &[2, 12],
    ]);
    let operations = decode_rows(&[everything]).unwrap();
    assert_eq!(operations[0].if_none_match.as_deref(), Some("*"));
    assert_eq!(operations[0].indexing_directive.as_deref(), Some("Include"));
    assert_eq!(operations[0].body.as_deref(), Some(&b"{}"[..]));
    assert!(!operations[0].minimal);
}

#[test]
fn damaged_streams_are_refused() {
    let good = stream(&[read_of("a")]);
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        decode(&bytes.into()).unwrap_err().reason
    };
    assert_eq!(broken(&Vec::clear), "unexpected end");
    assert_eq!(
        broken(&|bytes| bytes[0] = b'['),
        "a row does not start with its version"
    );
    assert_eq!(broken(&|bytes| bytes[1] ^= 1), "a row has another schema than expected");
    assert_eq!(broken(&|bytes| bytes[5] = 0), "a segment header has no length");
    assert_eq!(broken(&|bytes| bytes[6] = 9), "a segment header is too short");
    assert_eq!(broken(&|bytes| bytes[18] = 0xFF), "a length is negative");
    assert_eq!(
        broken(&|bytes| *bytes.last_mut().unwrap() ^= 1),
        "a record's checksum is wrong"
    );
    assert_eq!(broken(&|bytes| bytes.truncate(bytes.len() - 1)), "unexpected end");
    assert_eq!(broken(&|bytes| bytes.push(0x81)), "unexpected end");
    for (row, reason) in [
        (row(&[&[0x80]]), "a row has an unknown column"),
        (row(&[&[0x02], &2i32.to_le_bytes()]), "an operation has no type"),
        (
            row(&[&[0x03], &[0; 4], &3i32.to_le_bytes()]),
            "an operation is not on an item",
        ),
        (row(&[&head(0b1_0011, 2), &[5], b"ab"]), "unexpected end"),
        (row(&[&head(0b1_0011, 2), &[2, 0xFF, 0xFE]]), "a text is not UTF-8"),
        (row(&[&head(0b1_0011, 2), &[0xFF; 10]]), "a number is too long"),
        (row(&[&head(0b11, 2), &[99, 1]]), "a sparse column has an unknown type"),
        (row(&[&head(0b11, 2), &[3, 9]]), "a sparse column has the wrong type"),
        (row(&[&head(0b11, 2), &[3, 0xFF, 0xFF, 0x7F]]), "unexpected end"),
    ] {
        assert_eq!(decode_rows(&[row]).unwrap_err().reason, reason);
    }
}

#[test]
fn reading_stops_when_a_batch_is_already_too_long() {
    let rows = vec![read_of("a"); BATCH_OPERATIONS_MAX + 50];
    assert_eq!(decode_rows(&rows).unwrap().len(), BATCH_OPERATIONS_MAX + 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_rows_end_in_operations_or_an_error(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4)) {
        let bodies: Vec<Vec<u8>> = rows.iter().map(|bytes| row(&[bytes])).collect();
        let _ = decode_rows(&bodies);
        let _ = decode_rows(&rows);
    }

    #[test]
    fn damaged_streams_end_in_operations_or_an_error(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = stream(&[read_of("a"), row(&[&head(0b100_0011, 0), &[2], b"{}", &[20, 9, 1], b"x"])]);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = decode(&bytes.into());
    }

    #[test]
    fn ids_of_any_length_read_back(id in "\\PC{0,300}") {
        let mut length = Vec::new();
        let mut rest = id.len();
        while rest > 0x7F {
            length.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        length.push(rest as u8);
        let operations = decode_rows(&[row(&[&head(0b1_0011, 4), &length, id.as_bytes()])]).unwrap();
        prop_assert_eq!(operations[0].id.as_deref(), Some(id.as_str()));
    }
}
