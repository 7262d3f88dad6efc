//! The byte form of a transaction holds what was put in, and nothing a disk or a peer may send can make it panic.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn position() -> impl Strategy<Value = Position> {
    (any::<u32>(), any::<u64>(), any::<[u8; 16]>()).prop_map(|(epoch, lsn, hash)| Position {
        epoch: Epoch(epoch),
        lsn: Lsn(lsn),
        hash: ChainHash(hash),
    })
}

fn blob() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn epk() -> impl Strategy<Value = Epk> {
    vec(any::<u8>(), 0..40).prop_map(Epk::from_bytes)
}

fn put() -> impl Strategy<Value = Operation> {
    let parts = (
        epk(),
        any::<String>(),
        any::<u64>(),
        any::<[u8; 16]>(),
        option::of(any::<i32>()),
        (0u8..3).prop_map(|code| IndexingDirective::of_code(code).unwrap()),
        blob(),
    );
    parts.prop_map(|(epk, id, number, etag, ttl, directive, body)| {
        Operation::Put(PutItem {
            epk,
            id,
            number,
            etag: Etag(etag),
            ttl,
            directive,
            body,
        })
    })
}

fn opened() -> impl Strategy<Value = Operation> {
    let parents = vec((any::<u32>().prop_map(PartitionId), position()), 0..3);
    let parts = (any::<u32>(), epk(), epk(), parents, any::<u64>(), any::<u64>(), blob());
    parts.prop_map(
        |(partition, min, max, parents, session_version, definition_version, definition)| {
            Operation::Opened(Opened {
                partition: PartitionId(partition),
                range: EpkRange::new(min, max),
                parents,
                session_version,
                definition_version,
                definition,
            })
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    let delete = (epk(), any::<String>(), any::<u64>(), any::<bool>());
    prop_oneof![
        put(),
        delete.prop_map(|(epk, id, number, expired)| Operation::Delete(DeleteItem {
            epk,
            id,
            number,
            expired
        })),
        (epk(), any::<String>(), any::<u64>()).prop_map(|(epk, from, number)| Operation::Renamed(RenamedItem {
            epk,
            from,
            number
        })),
        (blob(), option::of(blob())).prop_map(|(key, value)| Operation::Record { key, value }),
        (any::<u64>(), blob()).prop_map(|(version, definition)| Operation::Defined { version, definition }),
        any::<u64>().prop_map(|previous| Operation::EpochStarted {
            previous: Lsn(previous)
        }),
        opened(),
        vec(any::<u32>().prop_map(PartitionId), 0..4).prop_map(|children| Operation::Sealed { children }),
        any::<u64>().prop_map(|through| Operation::HistoryTrimmed { through: Lsn(through) }),
        any::<u32>().prop_map(|n_items_max| Operation::Reindexed { n_items_max }),
    ]
}

/// A transaction and where its log stood before.
fn transaction() -> impl Strategy<Value = (Position, Transaction)> {
    let parts = (
        any::<u32>(),
        0..Lsn::LIMIT.0 - 2,
        any::<[u8; 16]>(),
        any::<u64>(),
        vec(operation(), 0..5),
    );
    parts.prop_map(|(epoch, lsn, hash, at, operations)| {
        let previous = Position {
            epoch: Epoch(epoch),
            lsn: Lsn(lsn),
            hash: ChainHash(hash),
        };
        (previous, Transaction::following(previous, Timestamp(at), operations))
    })
}

fn encode(transaction: &Transaction) -> Vec<u8> {
    let mut bytes = Vec::new();
    transaction.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn decoding_gives_back_what_was_encoded((previous, transaction) in transaction()) {
        let decoded = Transaction::decode(&Bytes::from(encode(&transaction))).unwrap();
        prop_assert!(decoded.follows(previous));
        prop_assert_eq!(decoded, transaction);
    }

    #[test]
    fn a_part_of_a_transaction_is_none((_, transaction) in transaction(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&transaction);
        let part = Bytes::from(bytes[..cut.index(bytes.len())].to_vec());
        prop_assert!(Transaction::decode(&part).is_err());
    }

    #[test]
    fn more_than_a_transaction_is_none((_, transaction) in transaction(), more in 1usize..9) {
        let mut bytes = encode(&transaction);
        bytes.extend(vec![0; more]);
        prop_assert!(Transaction::decode(&Bytes::from(bytes)).is_err());
    }

    #[test]
    fn a_changed_byte_never_passes_for_what_followed(
        (previous, transaction) in transaction(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut bytes = encode(&transaction);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        // An overlong number may decode to the same transaction; anything else is noticed.
        if let Ok(decoded) = Transaction::decode(&Bytes::from(bytes)) {
            prop_assert!(decoded == transaction || !decoded.follows(previous));
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in vec(any::<u8>(), 0..400)) {
        let _ = Transaction::decode(&Bytes::from(bytes.clone()));
        let _ = Transaction::decode(&Bytes::from([&[1; 33], bytes.as_slice()].concat()));
    }
}

#[test]
fn each_transaction_follows_the_one_before_it_and_no_other() {
    let record = |key: &'static str| {
        vec![Operation::Record {
            key: Bytes::from(key),
            value: None,
        }]
    };
    let first = Transaction::following(Position::default(), Timestamp(1), record("a"));
    let second = Transaction::following(first.position(), Timestamp(2), record("b"));
    assert!(first.follows(Position::default()));
    assert!(second.follows(first.position()));
    assert!(!second.follows(Position::default()), "a gap");
    let fork = Transaction::following(Position::default(), Timestamp(1), record("c"));
    assert!(!second.follows(fork.position()), "a fork");
}

#[test]
fn a_new_epoch_may_skip_numbers_but_never_goes_back() {
    let first = Transaction::following(Position::default(), Timestamp(1), Vec::new());
    let start = first.lsn.next_epoch_start();
    let began = vec![Operation::EpochStarted { previous: first.lsn }];
    let epoch = Transaction::at_lsn(first.position(), Epoch(1), start, Timestamp(2), began.clone());
    assert!(epoch.follows(first.position()));
    assert_eq!(epoch.lsn, Lsn(1 << 32));
    let lower = Transaction::at_lsn(epoch.position(), Epoch(0), start.next(), Timestamp(3), began.clone());
    assert!(!lower.follows(epoch.position()), "an epoch that is over");
    let same = Transaction::at_lsn(epoch.position(), Epoch(1), epoch.lsn, Timestamp(3), began);
    assert!(!same.follows(epoch.position()), "a number that was used");
}

#[test]
fn a_changed_operation_does_not_match_the_hash() {
    let mut transaction = Transaction::following(
        Position::default(),
        Timestamp(1),
        vec![Operation::Record {
            key: Bytes::from("a"),
            value: Some(Bytes::from("one")),
        }],
    );
    transaction.operations = vec![Operation::Record {
        key: Bytes::from("a"),
        value: Some(Bytes::from("two")),
    }];
    assert!(!transaction.follows(Position::default()));
}

#[test]
fn a_format_from_the_future_is_refused() {
    let mut bytes = encode(&Transaction::following(Position::default(), Timestamp(1), Vec::new()));
    bytes[0] += 1;
    assert_eq!(
        Transaction::decode(&Bytes::from(bytes)),
        Err(DecodeError("unknown format"))
    );
}

#[test]
fn the_byte_form_does_not_change_unnoticed() {
    let operations = vec![Operation::Record {
        key: Bytes::from("k"),
        value: Some(Bytes::from("v")),
    }];
    let transaction = Transaction::following(Position::default(), Timestamp(300), operations);
    let content = [0, 1, 0, 0xAC, 0x02, 1, 3, 1, b'k', 1, 1, b'v'];
    let bytes = encode(&transaction);
    assert_eq!(bytes[..17], [[1].as_slice(), &[0; 16]].concat());
    assert_eq!(bytes[17..33], ChainHash::ZERO.chain(&content).0);
    assert_eq!(bytes[33..], content);
}
