//! Keys sort as readers want and can be read back, whatever the form of the EPK in them.

use orrery_model::json;
use orrery_model::key::KeyComponent;
use orrery_model::{ContainerDefinition, Epk, Lsn, PartitionKey};
use proptest::prelude::*;

use crate::keys::{self, EpkForm, KeySpace};

fn container(kind: &str) -> ContainerDefinition {
    let text = format!(r#"{{"id":"c","partitionKey":{kind}}}"#);
    ContainerDefinition::create(&json::parse_value(text.as_bytes()).unwrap()).unwrap()
}

/// Hash version 2, a hierarchical key, and hash version 1, whose EPKs differ in length.
fn containers() -> [ContainerDefinition; 3] {
    [
        container(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#),
        container(r#"{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#),
        container(r#"{"paths":["/pk"],"kind":"Hash","version":1}"#),
    ]
}

fn component() -> impl Strategy<Value = KeyComponent> {
    prop_oneof![
        Just(KeyComponent::Undefined),
        Just(KeyComponent::Null),
        any::<bool>().prop_map(KeyComponent::Bool),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(KeyComponent::Number),
        ".{0,120}".prop_map(KeyComponent::String),
    ]
}

fn epk_in(definition: &ContainerDefinition, components: &[KeyComponent; 2]) -> Epk {
    let n_paths = definition.partition_key().paths().len();
    Epk::of(
        definition.partition_key(),
        &PartitionKey::new(components[..n_paths].to_vec()),
    )
}

/// EPKs with many zero bytes and common beginnings, which escaping must get right.
fn awkward_epk() -> impl Strategy<Value = Epk> {
    prop::collection::vec(
        prop_oneof![Just(0u8), Just(1), Just(0xFF), Just(0xFE), any::<u8>()],
        0..6,
    )
    .prop_map(Epk::from_bytes)
}

proptest! {
    #[test]
    fn an_item_s_key_gives_its_epk_and_number_back(
        components in [component(), component()],
        number: u64,
        id in "[a-z]{1,20}",
    ) {
        for definition in containers() {
            let form = EpkForm::of(definition.partition_key());
            let epk = epk_in(&definition, &components);
            prop_assert_eq!(keys::read_item(form, &keys::item(form, &epk, number)), Some((epk.clone(), number)));
            let pointer = keys::pointer(form, &epk);
            for (key, value) in [
                (keys::item(form, &epk, number), &[][..]),
                (keys::id(form, &epk, &id), &[][..]),
                (keys::unique(form, &epk, 3, [0; 16]), &[][..]),
                (keys::change(Lsn(number), 1, number), pointer.as_ref()),
                (keys::expiry(number, number), pointer.as_ref()),
            ] {
                prop_assert_eq!(keys::epk_of(form, &key, value), Some(epk.clone()), "{:?}", KeySpace::of(&key));
            }
        }
    }

    #[test]
    fn items_sort_by_epk_and_then_by_number(
        left in [component(), component()],
        right in [component(), component()],
        numbers: (u64, u64),
    ) {
        for definition in containers() {
            let form = EpkForm::of(definition.partition_key());
            let (a, b) = (epk_in(&definition, &left), epk_in(&definition, &right));
            let expected = (&a, numbers.0).cmp(&(&b, numbers.1));
            prop_assert_eq!(keys::item(form, &a, numbers.0).cmp(&keys::item(form, &b, numbers.1)), expected);
        }
    }

    #[test]
    fn escaped_epks_keep_their_order_and_never_run_into_what_follows(
        a in awkward_epk(),
        b in awkward_epk(),
        numbers: (u64, u64),
    ) {
        let form = EpkForm::Escaped;
        let expected = (&a, numbers.0).cmp(&(&b, numbers.1));
        prop_assert_eq!(keys::item(form, &a, numbers.0).cmp(&keys::item(form, &b, numbers.1)), expected);
        prop_assert_eq!(keys::read_item(form, &keys::item(form, &a, numbers.0)), Some((a.clone(), numbers.0)));
        // The bound of a range divides exactly the items at or after it from those before.
        let bound = keys::items_from(form, &b);
        prop_assert_eq!(keys::item(form, &a, numbers.0) >= bound, a >= b);
    }

    #[test]
    fn a_bound_divides_items_of_equal_length_too(a in [any::<u8>(); 4], b in awkward_epk(), number: u64) {
        let form = EpkForm::Fixed(4);
        let a = Epk::from_bytes(a);
        prop_assert_eq!(keys::item(form, &a, number) >= keys::items_from(form, &b), a >= b);
    }

    #[test]
    fn changes_sort_by_lsn_and_place_and_expiries_by_time(a: (u64, u16, u64), b: (u64, u16, u64)) {
        let change = |(lsn, index, number)| keys::change(Lsn(lsn), index, number);
        prop_assert_eq!(change(a).cmp(&change(b)), a.cmp(&b));
        prop_assert_eq!(keys::read_change(&change(a)), Some((Lsn(a.0), a.1, a.2)));
        let expiry = |(at, _, number)| keys::expiry(at, number);
        prop_assert_eq!(expiry(a).cmp(&expiry(b)), (a.0, a.2).cmp(&(b.0, b.2)));
        prop_assert_eq!(keys::read_expiry(&expiry(a)), Some((a.0, a.2)));
        let lsn = Lsn(b.0 >> 1);
        prop_assert_eq!(change(a) >= keys::changes_after(lsn), a.0 > lsn.0);
    }

    #[test]
    fn reading_what_is_not_a_key_gives_nothing_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        for form in [EpkForm::Fixed(16), EpkForm::Fixed(32), EpkForm::Escaped] {
            if let Some((epk, number)) = keys::read_item(form, &bytes) {
                prop_assert_eq!(keys::item(form, &epk, number).to_vec(), bytes.clone());
            }
            let _ = keys::epk_of(form, &bytes, &bytes);
        }
        let _ = (keys::read_change(&bytes), keys::read_expiry(&bytes));
    }
}

#[test]
fn every_space_has_bounds_of_its_own() {
    let form = EpkForm::Fixed(1);
    let epk = Epk::from_bytes([0xFF]);
    for key in [
        keys::state(),
        keys::definition(),
        keys::record(b"\xFF\xFF"),
        keys::item(form, &epk, u64::MAX),
        keys::id(form, &epk, "\u{10FFFF}"),
        keys::change(Lsn(u64::MAX), u16::MAX, u64::MAX),
        keys::expiry(u64::MAX, u64::MAX),
        keys::unique(form, &epk, u8::MAX, [0xFF; 16]),
    ] {
        let space = KeySpace::of(&key).unwrap();
        let (from, to) = keys::bounds(space);
        assert!(from <= key && key < to, "{space:?}");
    }
}
