use proptest::prelude::*;

use super::*;
use crate::key::PropertyPath;

fn definition(kind: KeyKind, version: KeyVersion, n_paths: usize) -> PartitionKeyDefinition {
    let paths = (0..n_paths)
        .map(|index| PropertyPath::parse(&format!("/p{index}")).unwrap())
        .collect();
    PartitionKeyDefinition::new(paths, kind, version, false)
}

fn v1() -> PartitionKeyDefinition {
    definition(KeyKind::Hash, KeyVersion::V1, 1)
}

fn v2() -> PartitionKeyDefinition {
    definition(KeyKind::Hash, KeyVersion::V2, 1)
}

fn multi_hash(n_paths: usize) -> PartitionKeyDefinition {
    definition(KeyKind::MultiHash, KeyVersion::V2, n_paths)
}

fn epk(definition: &PartitionKeyDefinition, key: &str) -> String {
    Epk::of(definition, &PartitionKey::parse(key).unwrap()).to_string()
}

#[test]
fn single_keys_hash_as_the_sdks_hash_them() {
    let long = format!("[\"{}\"]", "a".repeat(1024));
    let long_v1 = format!("05C1EB5921F70608{}00", "62".repeat(100));
    for (key, expected_v2, expected_v1) in [
        (r#"[""]"#, "32E9366E637A71B4E710384B2F4970A0", "05C1CF33970FF80800"),
        (
            r#"["partitionKey"]"#,
            "013AEFCF77FA271571CF665A58C933F1",
            "05C1E1B3D9CD2608716273756A756A706F4C667A00",
        ),
        (&long, "332BDF5512AE49615F32C7D98C2DB86C", &long_v1),
        (
            r#"["redmond"]"#,
            "22E342F38A486A088463DFF7838A5963",
            "05C1EFE313830C087366656E706F6500",
        ),
        ("[null]", "378867E4430E67857ACE5C908374FE16", "05C1ED45D7475601"),
        ("[{}]", "11622DAA78F835834610ABE56EFF5CB5", "05C1D529E345DC00"),
        ("[true]", "0E711127C5B5A8E4726AC6DD306A3E59", "05C1D7C5A903D803"),
        ("[false]", "2FE1BE91E90A3439635E0E9E37361EF2", "05C1DB857D857C02"),
        ("[-128]", "01DAEDABF913540367FE219B2AD06148", "05C1D73349F54C053FA0"),
        ("[127]", "0C507ACAC853ECA7977BF4CEFB562A25", "05C1DD539DDFCC05C05FE0"),
        ("[5.0]", "19C08621B135968252FB34B4CF66F811", "05C1D9C1C5517C05C014"),
        (
            "[5.12312419050912359]",
            "0EF2E2D82460884AF0F6440BE4F726A8",
            "05C1CD6757FB7805C0153F858949735550",
        ),
        (
            "[-2147483648]",
            "0B1660D5233C3171725B30D4A5F4CC1F",
            "05C1DFBF252BCC053E20",
        ),
        (
            "[2147483647]",
            "2D9349D64712AEB5EB1406E2F0BE2725",
            "05C1E1F503DFB205C1DFFFFFFFFC",
        ),
        (
            "[-9223372036854775808]",
            "23D5C6395512BDFEAFADAD15328AD2BB",
            "05C1DB35F33D1C053C20",
        ),
        (
            "[9223372036854775807]",
            "2EDB959178DFCCA18983F89384D1629B",
            "05C1B799AB2DD005C3E0",
        ),
        (
            "[5e-324]",
            "0E6CBA63A280927DE485DEF865800139",
            "05C1E5C91F4D3005800101010101010102",
        ),
        (
            "[1.7976931348623157e308]",
            "31424D996457102634591FF245DBCC4D",
            "05C1CBE367C53005FFEFFFFFFFFFFFFFFE",
        ),
    ] {
        assert_eq!(epk(&v2(), key), expected_v2, "{key}");
        assert_eq!(epk(&v1(), key), expected_v1, "{key}");
    }
    assert_eq!(epk(&v2(), r#"["asdf"]"#), "208BF1D598F5B63AD5520F04FE58C5E8");
}

#[test]
fn several_components_hash_together_or_level_by_level() {
    let together = definition(KeyKind::Hash, KeyVersion::V2, 4);
    assert_eq!(
        epk(&together, r#"[5.0,"redmond",true,null]"#),
        "3032DECBE2AB1768D8E0AEDEA35881DF"
    );
    let levels = multi_hash(2);
    let redmond = "22E342F38A486A088463DFF7838A5963";
    assert_eq!(
        epk(&levels, r#"["redmond",5.0]"#),
        format!("{redmond}19C08621B135968252FB34B4CF66F811")
    );
    assert_eq!(epk(&levels, r#"["redmond"]"#), redmond);
    assert_eq!(
        epk(&levels, r#"["redmond",{}]"#),
        format!("{redmond}11622DAA78F835834610ABE56EFF5CB5")
    );
}

#[test]
fn the_raw_32_bit_hash_of_version_1_matches() {
    let hash = |key: &str| {
        let mut bytes = Vec::new();
        let key = PartitionKey::parse(key).unwrap();
        key.components()
            .iter()
            .for_each(|component| component_bytes(component, 0x00, &mut bytes));
        murmur::x86_32(&bytes)
    };
    for (key, expected) in [
        ("[{}]", 0x514E_28B7),
        ("[null]", 0xE45A_D1AB),
        ("[true]", 0x5E2A_8076),
        ("[false]", 0x6C27_D09F),
        (r#"[""]"#, 0x3CCC_B0FF),
        ("[0]", 0x1EDA_80A6),
        ("[1]", 0xE165_5A93),
        (r#"["asdf"]"#, 0xB02B_ABC2),
    ] {
        assert_eq!(hash(key), expected, "{key}");
    }
}

#[test]
fn the_empty_key_is_the_beginning_of_everything() {
    for definition in [v1(), v2(), multi_hash(3)] {
        let none = PartitionKey::new(Vec::new());
        assert_eq!(Epk::of(&definition, &none), Epk::min());
        assert_eq!(EpkRange::of_key(&definition, &none), EpkRange::full());
    }
}

#[test]
fn a_prefix_of_a_hierarchical_key_owns_its_continuations() {
    let levels = multi_hash(3);
    let range = |key: &str| EpkRange::of_key(&levels, &PartitionKey::parse(key).unwrap());
    assert_eq!(
        range(r#"["redmond"]"#).max.to_string(),
        "22E342F38A486A088463DFF7838A5963FF"
    );
    assert!(range(r#"["redmond"]"#).covers(&range(r#"["redmond",5]"#)));
    assert!(range(r#"["redmond",5]"#).covers(&range(r#"["redmond",5,null]"#)));
    assert!(!range(r#"["redmond",5]"#).overlaps(&range(r#"["redmond",6]"#)));
}

#[test]
fn hex_reads_in_either_case_and_prints_upper() {
    for (text, printed) in [
        ("", ""),
        ("FF", "FF"),
        ("05c1cf", "05C1CF"),
        ("1FFF", "1FFF"),
        ("3", "30"),
        ("05C", "05C0"),
    ] {
        assert_eq!(Epk::parse(text).unwrap().to_string(), printed);
    }
    for text in ["G0", " 0", "0x", "é"] {
        assert_eq!(Epk::parse(text), None, "{text}");
    }
}

#[test]
fn bounds_compare_as_if_a_shorter_one_were_padded_with_zeros() {
    let epk = |text: &str| Epk::parse(text).unwrap();
    assert!(Epk::min() < epk("00") && epk("00") < epk("0001"));
    assert!(epk("1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF") < epk("1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00"));
    assert!(epk("3FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF") < Epk::max());
    let range = EpkRange::new(epk("10"), epk("20"));
    assert!(range.contains(&epk("10")) && range.contains_bytes(&[0x1F, 0xFF]) && !range.contains(&epk("20")));
}

#[test]
fn a_new_container_is_divided_evenly() {
    let bounds = |definition: &PartitionKeyDefinition, n| -> Vec<String> {
        EpkRange::initial(definition, n)
            .iter()
            .map(|range| range.to_string())
            .collect()
    };
    let half = "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF";
    assert_eq!(bounds(&v2(), 1), ["[, FF)"]);
    assert_eq!(bounds(&v2(), 2), [format!("[, {half})"), format!("[{half}, FF)")]);
    assert_eq!(bounds(&multi_hash(2), 2), bounds(&v2(), 2));
    assert_eq!(bounds(&v1(), 2), ["[, 05C1E0)", "[05C1E0, FF)"]);
}

#[test]
fn intersections_are_what_both_ranges_hold() {
    let range = |min: &str, max: &str| EpkRange::new(Epk::parse(min).unwrap(), Epk::parse(max).unwrap());
    assert_eq!(
        range("", "20").intersection(&range("10", "FF")),
        Some(range("10", "20"))
    );
    assert_eq!(range("", "10").intersection(&range("10", "FF")), None);
    assert!(!range("", "10").overlaps(&range("10", "FF")));
}

#[test]
fn a_range_too_narrow_to_cut_is_left_whole() {
    let key = EpkRange::of_key(&v2(), &PartitionKey::parse("[1]").unwrap());
    assert_eq!(key.divide(&v2(), 2), None);
    let key = EpkRange::of_key(&v1(), &PartitionKey::parse("[1]").unwrap());
    assert_eq!(key.divide(&v1(), 2), None);
}

fn any_definition() -> impl Strategy<Value = PartitionKeyDefinition> {
    prop_oneof![Just(v1()), Just(v2()), Just(multi_hash(2)), Just(multi_hash(3))]
}

fn any_component() -> impl Strategy<Value = KeyComponent> {
    prop_oneof![
        Just(KeyComponent::Undefined),
        Just(KeyComponent::Null),
        any::<bool>().prop_map(KeyComponent::Bool),
        any::<f64>().prop_map(KeyComponent::Number),
        "\\PC{0,40}".prop_map(KeyComponent::String),
    ]
}

proptest! {
    #[test]
    fn divided_ranges_cover_without_gap_or_overlap(
        definition in any_definition(),
        n in 1u32..40,
        again in 2u32..6,
        components in prop::collection::vec(any_component(), 3),
    ) {
        let n_levels = definition.paths().len();
        let epk = Epk::of(&definition, &PartitionKey::new(components[..n_levels].to_vec()));
        let mut ranges = EpkRange::initial(&definition, n);
        let split = ranges.pop().unwrap();
        ranges.extend(split.divide(&definition, again).unwrap());
        prop_assert_eq!(ranges.len() as u32, n - 1 + again);
        prop_assert_eq!(&ranges[0].min, &Epk::min());
        prop_assert_eq!(&ranges.last().unwrap().max, &Epk::max());
        for pair in ranges.windows(2) {
            prop_assert_eq!(&pair[0].max, &pair[1].min);
            prop_assert!(pair[0].min < pair[0].max);
        }
        prop_assert_eq!(ranges.iter().filter(|range| range.contains(&epk)).count(), 1);
    }

    #[test]
    fn a_keys_own_range_holds_it_alone(definition in any_definition(), a in any_component(), b in any_component()) {
        let key = |component: &KeyComponent| PartitionKey::new(vec![component.clone(); definition.paths().len()]);
        let range = EpkRange::of_key(&definition, &key(&a));
        prop_assert!(range.contains(&Epk::of(&definition, &key(&a))));
        if definition.version() == KeyVersion::V2 {
            prop_assert_eq!(range.contains(&Epk::of(&definition, &key(&b))), a == b);
        }
    }

    #[test]
    fn encoded_numbers_sort_as_numbers_and_decode(a in any::<u32>(), b in any::<u32>()) {
        prop_assert_eq!(encode_v1_hash(a).cmp(&encode_v1_hash(b)), a.cmp(&b));
        prop_assert_eq!(decode_v1_hash(&encode_v1_hash(a)), Some(f64::from(a)));
    }

    #[test]
    fn every_epk_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,8}") {
        let epk = Epk::from_bytes(bytes);
        prop_assert_eq!(Epk::parse(&epk.to_string()), Some(epk));
        let _ = Epk::parse(&text);
    }
}
