//! Unique keys: who owns a value.

use super::{UNIQUE, check};

#[test]
fn a_unique_value_has_one_owner_per_partition_key() {
    check(
        UNIQUE,
        r#"
        create a {"email":"x","a":1} => 201 put
        create b {"email":"x","a":2} => 409
        create b {"email":"y","a":1} => 409
        create b @q {"email":"x","a":1} => 201 put
        create b {"email":"y","a":2} => 201 put
        replace b {"email":"x","a":2} => 409
        replace b {"email":"y","a":3} => 200 put
        upsert b {"email":"x","a":9} => 409
        patch b [{"op":"set","path":"/email","value":"x"}] => 409
        replace a {"email":"z","a":1} => 200 put
        create c {"email":"x","a":4} => 201 put
        delete c => 204 delete
        create d {"email":"x","a":4} => 201 put
        "#,
    );
}

#[test]
fn numbers_are_unique_as_doubles() {
    check(
        UNIQUE,
        r#"
        create a {"email":1,"a":1} => 201 put
        create b {"email":1.0,"a":2} => 409
        create c {"email":9007199254740992,"a":3} => 201 put
        create d {"email":9007199254740993,"a":4} => 409
        create d {"email":9007199254740994,"a":4} => 201 put
        "#,
    );
}

#[test]
fn a_missing_value_counts_as_null_for_uniqueness() {
    check(
        UNIQUE,
        r#"
        create a {"a":1} => 201 put
        create b {"a":2} => 409
        create b {"email":null,"a":2} => 409
        create b {"email":"x"} => 201 put
        create c {"email":"y","a":null,"b":null} => 409
        "#,
    );
}

#[test]
fn unique_values_move_within_a_batch() {
    check(
        UNIQUE,
        r#"
        create a {"email":"x","a":1} => 201 put
        batch delete a | create b {"email":"x","a":1} => 204 201 delete put
        batch replace b {"email":"y","a":1} | create c {"email":"x","a":2} => 200 201 put put
        batch create d {"email":"d","a":3} | create e {"email":"d","a":4} => 424 409
        items => b c
        "#,
    );
}

#[test]
fn an_expired_owner_makes_room_for_its_unique_value() {
    let extra = format!(r#","defaultTtl":10{UNIQUE}"#);
    check(
        &extra,
        r#"
        create a {"email":"x","a":1} => 201 put
        create b {"email":"y","a":2} => 201 put
        create k {"email":"k","a":3,"ttl":-1} => 201 put
        advance 10
        create c {"email":"x","a":2} => 201 expire expire put
        items => k c
        create a {"email":"z","a":1} => 201 put
        create d {"email":"k","a":4} => 409
        advance 10
        create a {"email":"x","a":1} => 201 expire expire put
        items => k a
        replace k {"email":"c","a":2} => 200 put
        items => k a
        "#,
    );
}
