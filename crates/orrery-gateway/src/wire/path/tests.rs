use proptest::prelude::*;

use super::*;

fn routed(path: &str) -> Route<'static> {
    let uri: &'static Uri = Box::leak(Box::new(path.parse().unwrap()));
    route(uri).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn signed(path: &str) -> (&'static str, String) {
    let route = routed(path);
    (route.signed.resource_type, route.signed.link.into_owned())
}

fn status(path: &str) -> u16 {
    route(&path.parse().unwrap()).expect_err(path).status().code
}

fn name(text: &str) -> Selector {
    Selector::Name(text.to_owned())
}

fn rid(text: &str) -> Selector {
    Selector::Rid(ResourceId::parse(text).unwrap())
}

#[test]
fn the_signature_covers_the_target_of_a_point_and_the_parent_of_a_feed() {
    for (path, resource_type, link) in [
        ("/", "", ""),
        ("/dbs", "dbs", ""),
        ("/dbs/ToDoList", "dbs", "dbs/ToDoList"),
        ("/dbs/MyDb/colls", "colls", "dbs/MyDb"),
        ("/dbs/MyDb/colls/MyColl", "colls", "dbs/MyDb/colls/MyColl"),
        ("/dbs/MyDb/colls/MyColl/docs", "docs", "dbs/MyDb/colls/MyColl"),
        ("/dbs/MyDb/colls/MyColl/docs/x", "docs", "dbs/MyDb/colls/MyColl/docs/x"),
        ("/dbs/MyDb/colls/MyColl/pkranges", "pkranges", "dbs/MyDb/colls/MyColl"),
        (
            "/dbs/MyDb/colls/MyColl/sprocs/s",
            "sprocs",
            "dbs/MyDb/colls/MyColl/sprocs/s",
        ),
        ("/dbs/MyDb/colls/c/triggers", "triggers", "dbs/MyDb/colls/c"),
        ("/dbs/MyDb/colls/c/udfs/f", "udfs", "dbs/MyDb/colls/c/udfs/f"),
        ("/dbs/MyDb/colls/c/conflicts", "conflicts", "dbs/MyDb/colls/c"),
        ("/dbs/MyDb/users", "users", "dbs/MyDb"),
        (
            "/dbs/MyDb/users/u/permissions/p",
            "permissions",
            "dbs/MyDb/users/u/permissions/p",
        ),
        (
            "/dbs/MyDb/clientencryptionkeys/k",
            "clientencryptionkeys",
            "dbs/MyDb/clientencryptionkeys/k",
        ),
        (
            "/dbs/MyDb/colls/C/operations/partitionkeydelete",
            "colls",
            "dbs/MyDb/colls/C",
        ),
        ("/offers", "offers", ""),
        ("/offers/AbC0", "offers", "abc0"),
    ] {
        assert_eq!(signed(path), (resource_type, link.to_owned()), "{path}");
    }
}

#[test]
fn of_a_path_of_resource_ids_only_the_last_is_signed_in_lower_case() {
    for (path, resource_type, link) in [
        ("/dbs/Lx1BAA==", "dbs", "lx1baa=="),
        ("/dbs/Lx1BAA==/colls", "colls", "lx1baa=="),
        ("/dbs/Lx1BAA==/colls/Lx1BALxJyZ8=/pkranges", "pkranges", "lx1balxjyz8="),
        (
            "/dbs/Lx1BAA==/colls/Lx1BALxJyZ8=/operations/partitionkeydelete",
            "colls",
            "lx1balxjyz8=",
        ),
        ("/dbs/Lx1BAA%3D%3D/colls/Lx1BALxJyZ8%3D/docs", "docs", "lx1balxjyz8="),
    ] {
        assert_eq!(signed(path), (resource_type, link.to_owned()), "{path}");
    }
    let route = routed("/dbs/Lx1BAA==/colls/Lx1BALxJyZ8=/docs/Lx1BALxJyZ8BAAAAAAAAAA==");
    assert_eq!(route.ancestors, [rid("Lx1BAA=="), rid("Lx1BALxJyZ8=")]);
    assert_eq!(route.target, Some(rid("Lx1BALxJyZ8BAAAAAAAAAA==")));
}

#[test]
fn names_and_resource_ids_do_not_mix() {
    for path in [
        "/dbs/Lx1BAA==/colls/orders",
        "/dbs/Lx1BAA==/colls/Lx1BALxJyZ8=/docs/x",
        // A container of another database.
        "/dbs/AAAAAQ==/colls/Lx1BALxJyZ8=",
        // A document id where a container's belongs.
        "/dbs/Lx1BAA==/colls/Lx1BALxJyZ8BAAAAAAAAAA==",
    ] {
        assert_eq!(status(path), 400, "{path}");
    }
    // Below a name, what looks like a resource id is a name.
    let route = routed("/dbs/shop/colls/Lx1BALxJyZ8=");
    assert_eq!(route.target, Some(name("Lx1BALxJyZ8=")));
}

#[test]
fn trailing_and_double_slashes_change_nothing() {
    for path in [
        "/dbs/d/colls/c/docs/x",
        "/dbs/d/colls/c/docs/x/",
        "//dbs/d//colls/c/docs/x//",
    ] {
        assert_eq!(routed(path), routed("/dbs/d/colls/c/docs/x"), "{path}");
    }
    assert_eq!(routed("//").kind, RouteKind::Account);
}

#[test]
fn segments_are_decoded_once_and_keep_plus_and_escaped_slashes() {
    for (segment, id) in [
        ("a+b", "a+b"),
        ("a%2Bb", "a+b"),
        ("a%2Fb", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("%C3%A9", "é"),
        ("it's", "it's"),
        ("a%20b", "a b"),
    ] {
        let route = routed(&format!("/dbs/d/colls/c/docs/{segment}"));
        assert_eq!(route.target, Some(name(id)), "{segment}");
        assert_eq!(route.signed.link, format!("dbs/d/colls/c/docs/{id}"), "{segment}");
    }
    assert_eq!(status("/dbs/%FF"), 400);
}

#[test]
fn the_query_string_takes_no_part() {
    assert_eq!(routed("/dbs/d?x=/colls/c"), routed("/dbs/d"));
}

#[test]
fn paths_outside_the_api_are_not_found() {
    for path in [
        "/db",
        "/dbs/d/docs",
        "/dbs/d/colls/c/attachments",
        "/dbs/d/colls/c/docs/x/y",
        "/colls/c",
        "/dbs/d/colls/c/docs/x/y/z",
        "/dbs/d/users/u/operations/partitionkeydelete",
    ] {
        assert_eq!(status(path), 404, "{path}");
    }
}

#[test]
fn a_link_is_a_part_of_the_path_unless_something_was_decoded_or_left_out() {
    for (path, link, is_borrowed) in [
        ("/dbs/d/colls/c/docs/x", "dbs/d/colls/c/docs/x", true),
        ("//dbs/d/colls/c/docs/x/", "dbs/d/colls/c/docs/x", true),
        ("/dbs/d/colls/c/docs/", "dbs/d/colls/c", true),
        ("/dbs//d/colls/c", "dbs/d/colls/c", false),
        ("/dbs/d/colls/c//docs", "dbs/d/colls/c", true),
        ("/dbs/d/colls/c/docs/%25", "dbs/d/colls/c/docs/%", false),
        ("/dbs/d%20/colls/c/docs/x", "dbs/d /colls/c/docs/x", false),
    ] {
        let signed = routed(path).signed;
        assert_eq!(signed.link, link, "{path}");
        assert_eq!(matches!(signed.link, Cow::Borrowed(_)), is_borrowed, "{path}");
    }
}

#[test]
fn a_client_in_direct_mode_is_told_to_use_the_gateway() {
    let uri = "//addresses/?$resolveFor=dbs/d/colls/c/docs".parse().unwrap();
    let error = route(&uri).unwrap_err();
    assert_eq!(error.status(), Status::BAD_REQUEST);
    assert!(error.message().contains("gateway mode"));
}

#[test]
fn distributed_transactions_are_not_implemented() {
    assert_eq!(status("/operations/dtc"), 501);
}

proptest! {
    #[test]
    fn no_path_panics(path in "/[ -~]{0,200}") {
        if let Ok(uri) = path.parse::<Uri>() {
            let _ = route(&uri);
        }
    }

    #[test]
    fn any_id_survives_being_escaped(id in "[^/]{1,40}") {
        let escaped: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let route = routed(&format!("/dbs/d/colls/c/docs/{escaped}"));
        prop_assert_eq!(route.target, Some(Selector::Name(id)));
    }

    #[test]
    fn paths_made_of_known_words_never_panic(words in proptest::collection::vec("dbs|colls|docs|users|permissions|offers|operations|partitionkeydelete|Lx1BAA==|Lx1BALxJyZ8=|%|x", 0..9)) {
        let path = format!("/{}", words.join("/"));
        let _ = route(&path.parse().unwrap());
    }
}
