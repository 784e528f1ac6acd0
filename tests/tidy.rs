//! The repository's rules as an ordinary test: layers, addresses of `unsafe` and of globals, file sizes, docstrings, links, words.

#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/lexer.rs"]
mod lexer;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/statics.rs"]
mod statics;
#[path = "tidy/text.rs"]
mod text;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/unsafety.rs"]
mod unsafety;

use tree::{Breach, Source};

/// Applies one rule to every file of the repository and fails with all breaches, one a line.
fn everywhere(rule: impl Fn(&Source) -> Vec<Breach>) {
    let breaches: Vec<String> = tree::sources()
        .iter()
        .flat_map(|file| rule(file).into_iter().map(|breach| breach.at(file)))
        .collect();
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn lower_layers_do_not_use_higher_ones() {
    let names = ["src/lib.rs", "src/tables/mod.rs"].map(|path| layers::reexports(&tree::read(path)));
    everywhere(|file| layers::check(file, &names));
}

#[test]
fn unsafe_stays_at_its_addresses() {
    everywhere(unsafety::check_address);
}

#[test]
fn unsafe_addresses_are_in_use() {
    let breaches = unsafety::unused_addresses(&tree::sources());
    assert!(breaches.is_empty(), "remove these from the list in tests/tidy/unsafety.rs: {breaches:?}");
}

#[test]
fn every_unsafe_says_why_it_is_sound() {
    everywhere(unsafety::check_reason);
}

#[test]
fn globals_stay_at_their_addresses() {
    everywhere(statics::check);
}

#[test]
fn addresses_of_globals_are_in_use() {
    let breaches = statics::unused_addresses(&tree::sources());
    assert!(breaches.is_empty(), "remove these from the list in tests/tidy/statics.rs: {breaches:?}");
}

#[test]
fn files_open_with_a_sentence() {
    everywhere(text::check_opening);
}

#[test]
fn files_are_small() {
    everywhere(text::check_size);
}

#[test]
fn no_word_is_out_of_place() {
    everywhere(text::check_words);
}

#[test]
fn types_that_leave_their_files_have_names_of_their_own() {
    let breaches = names::check_types(&tree::sources());
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn retired_words_do_not_come_back() {
    everywhere(names::check_retired);
}

#[test]
fn the_product_knows_no_path_of_its_builder() {
    everywhere(text::check_builders_paths);
}

#[test]
fn make_targets_have_help() {
    everywhere(pages::check_makefile);
}

#[test]
fn links_lead_somewhere() {
    everywhere(|file| pages::check_links(file, &|path| tree::root().join(path).exists()));
}

#[test]
fn paths_on_pages_for_contributors_lead_somewhere() {
    everywhere(|file| pages::check_paths(file, &|path| tree::root().join(path).exists()));
}

#[test]
fn the_changelog_is_open() {
    everywhere(pages::check_changelog);
}
