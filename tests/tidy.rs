//! The repository's rules as an ordinary test: layers, files that may use `unsafe` and globals, file sizes, docstrings, links, words.

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

/// Applies one rule to every file of the repository and fails with all breaches, one per line.
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
fn unsafe_is_used_only_in_listed_files() {
    everywhere(unsafety::check_address);
}

#[test]
fn files_listed_for_unsafe_use_it() {
    let breaches = unsafety::unused_addresses(&tree::sources());
    assert!(breaches.is_empty(), "remove these from the list in tests/tidy/unsafety.rs: {breaches:?}");
}

#[test]
fn every_unsafe_block_has_a_safety_comment() {
    everywhere(unsafety::check_reason);
}

#[test]
fn globals_are_only_in_listed_files() {
    everywhere(statics::check);
}

#[test]
fn files_listed_for_globals_have_some() {
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
fn no_word_is_misplaced() {
    everywhere(text::check_words);
}

#[test]
fn types_visible_outside_their_file_have_unique_names() {
    let breaches = names::check_types(&tree::sources());
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn retired_words_do_not_come_back() {
    everywhere(names::check_retired);
}

#[test]
fn the_product_contains_no_build_paths() {
    everywhere(text::check_builders_paths);
}

#[test]
fn make_targets_have_help() {
    everywhere(pages::check_makefile);
}

#[test]
fn links_are_not_broken() {
    everywhere(|file| pages::check_links(file, &|path| tree::root().join(path).exists()));
}

#[test]
fn paths_on_contributor_pages_exist() {
    everywhere(|file| pages::check_paths(file, &|path| tree::root().join(path).exists()));
}

#[test]
fn the_changelog_has_an_unreleased_section() {
    everywhere(pages::check_changelog);
}
