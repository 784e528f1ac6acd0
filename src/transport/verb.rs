//! Verbs: the kinds of calls that ranks announce to each other. The transport carries their numbers; each layer declares its own.

/// A kind of call, as signatures and activity records carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verb(u8);

/// What a verb means to users.
#[derive(Clone, Copy)]
pub(crate) struct VerbDescriptor {
    pub verb: Verb,
    /// The name in the public API.
    pub name: &'static str,
    /// Whether the sizes in the call's signature mean something to users, rather than to the library alone.
    pub has_sizes: bool,
}

impl VerbDescriptor {
    /// A verb with a number that no other verb has ever had.
    pub const fn new(number: u8, name: &'static str) -> VerbDescriptor {
        VerbDescriptor { verb: Verb(number), name, has_sizes: true }
    }

    pub const fn without_sizes(mut self) -> VerbDescriptor {
        self.has_sizes = false;
        self
    }
}

/// Declares the verbs of a layer: a constant for each, and the list `VERBS`, which the root of the crate collects.
macro_rules! verbs {
    ($($name:ident: $descriptor:expr,)*) => {
        $(pub(crate) const $name: $crate::transport::Verb = $descriptor.verb;)*
        pub(crate) const VERBS: &[$crate::transport::VerbDescriptor] = &[$($descriptor),*];
    };
}
pub(crate) use verbs;

/// The verbs of messages.
pub(crate) const VERBS: &[VerbDescriptor] = &[
    VerbDescriptor::new(Verb::SEND.0, "send"),
    VerbDescriptor::new(Verb::RECV.0, "recv"),
    VerbDescriptor::new(Verb::REVOKE.0, "nothing any more"),
];

impl Verb {
    pub const SEND: Verb = Verb(10);
    pub const RECV: Verb = Verb(12);
    /// Sent by a member that has given up its group.
    pub const REVOKE: Verb = Verb(13);

    pub const fn number(self) -> u8 {
        self.0
    }

    /// The name in the public API.
    #[inline]
    pub fn name(self) -> &'static str {
        self.descriptor().map_or("an unknown call", |descriptor| descriptor.name)
    }

    /// The verb of a number that a peer has sent, which may be one that no layer declares.
    pub const fn from_number(number: u8) -> Verb {
        Verb(number)
    }

    /// `None` if no layer declares this verb.
    #[inline]
    pub fn descriptor(self) -> Option<&'static VerbDescriptor> {
        crate::VERBS.0.get(usize::from(self.0))?.as_ref()
    }
}

/// The verbs of all layers by number.
pub(crate) struct VerbTable([Option<VerbDescriptor>; 64]);

impl VerbTable {
    /// Fails to compile if two verbs have one number.
    pub const fn new(layers: &[&[VerbDescriptor]]) -> VerbTable {
        let mut table = [None; 64];
        let mut layer = 0;
        while layer < layers.len() {
            let mut at = 0;
            while at < layers[layer].len() {
                let descriptor = layers[layer][at];
                let number = descriptor.verb.0 as usize;
                assert!(
                    number > 0 && table[number].is_none(),
                    "verbs have numbers of their own, from 1 to 63"
                );
                table[number] = Some(descriptor);
                at += 1;
            }
            layer += 1;
        }
        VerbTable(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Signature;

    #[test]
    fn numbers_never_change_and_names_differ() {
        let declared: Vec<(u8, &str)> =
            (0..=u8::MAX).filter_map(|number| Some((number, Verb(number).descriptor()?.name))).collect();
        let numbers = "1 barrier, 2 broadcast, 3 scatter, 4 gather, 5 all_gather, 6 reduce, 7 all_reduce, \
            8 reduce_scatter, 9 all_to_all, 10 send, 11 group, 12 recv, 13 nothing any more, 14 scan, 15 init, \
            20 halo forward, 21 halo adjoint, 22 halo end, 23 halo forward in CUDA memory, 24 halo adjoint in CUDA memory, \
            30 the first use of tables, 31 new table, 32 save, 33 load, 34 a table's get, 35 a table's add";
        let words: Vec<String> = declared.iter().map(|(number, name)| format!("{number} {name}")).collect();
        assert_eq!(words.join(", "), numbers);
        let names: std::collections::HashSet<&str> = declared.iter().map(|(_, name)| *name).collect();
        assert_eq!(names.len(), declared.len());
    }

    #[test]
    #[should_panic(expected = "numbers of their own")]
    fn a_number_declared_twice_is_rejected() {
        VerbTable::new(&[&[VerbDescriptor::new(7, "one")], &[VerbDescriptor::new(7, "other")]]);
    }

    #[test]
    fn an_unknown_number_from_a_peer_is_printed() {
        assert_eq!(Verb::from_number(200).name(), "an unknown call");
        assert_eq!(Signature::new(Verb(200), 3).to_string(), "an unknown call (number 200) #3");
        assert_eq!(size_of::<Signature>(), 32);
    }
}
