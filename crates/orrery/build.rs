//! Embeds the web application anew when it was built anew.

fn main() {
    println!("cargo:rerun-if-changed=../../web/dist");
}
