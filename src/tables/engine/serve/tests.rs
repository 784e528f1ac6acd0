//! Forged requests from other hosts: the server replies with an error, never panics, and leaves the tables unchanged.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::*;
use crate::memory::DType;
use crate::tables::remote::RowList;
use crate::tables::remote::compress::{Compression, Packer, RowIds};
use crate::tables::{
    AddOptions, ArrayTable, Consistency, CustomTable, KeyType, KeyValueTable, MatrixTable, Requests, Role,
    ServerHalf, SparseMatrixTable, TableKind, TableOptions, Tables, UpdaterChoice, WorkerHalf,
};
use crate::testing::{call, fuzz, mutate, spawn_placed};
use crate::transport::{MatchKey, Signature, Transport};

/// Counts the bytes of its adds.
struct Counter;

impl ServerHalf for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn bytes(&self, _server: usize, _servers: usize) -> usize {
        8
    }

    fn add(&self, memory: &mut [u8], _worker: usize, request: &[u8]) -> Result<()> {
        memory[0] = memory[0].wrapping_add(request.len() as u8);
        Ok(())
    }

    fn get(&self, memory: &mut [u8], _worker: usize, request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        reply.extend_from_slice(&memory[..request.len().min(8)]);
        Ok(())
    }
}

/// Passes bytes through as requests.
struct Bytes;

impl WorkerHalf for Bytes {
    type Delta = [u8];
    type Query = [u8];
    type Answer = Requests;

    fn split_add(&self, delta: &[u8], servers: usize) -> Result<Requests> {
        Ok((0..servers).map(|server| (server, delta.to_vec())).collect())
    }

    fn split_get(&self, query: &[u8], servers: usize) -> Result<Requests> {
        self.split_add(query, servers)
    }

    fn merge(&self, _query: &[u8], replies: Requests) -> Result<Requests> {
        Ok(replies)
    }
}

const ROWS: usize = 6;
const COLS: usize = 4;

/// What a rank hands to the test.
struct Rank {
    rank: usize,
    registry: Arc<Registry>,
    transport: Arc<dyn Transport>,
    context: u32,
    honest: ArrayTable<f32>,
}

/// Three ranks on three hosts, all of them workers and servers, which live until `_end` is dropped.
struct Scene {
    ranks: Vec<Rank>,
    threads: JoinHandle<()>,
    _end: Sender<()>,
}

fn start() -> Scene {
    let (out, came) = channel();
    let (end, ended) = channel::<()>();
    let ended: Mutex<Receiver<()>> = Mutex::new(ended);
    let threads = std::thread::spawn(move || {
        spawn_placed(&[0, 1, 2], |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let options = |consistency| TableOptions { consistency, ..TableOptions::default() };
            let free = || options(Consistency::Async);
            let rounds = TableOptions {
                updater: UpdaterChoice::named("adam").unwrap(),
                ..options(Consistency::Bsp { backup: 0, mean: true })
            };
            let honest = ArrayTable::create(&tables, 30, Some(&[1.0; 30]), free()).unwrap();
            let made = (
                MatrixTable::<f32>::create(&tables, (3 * ROWS, COLS), None, free()).unwrap(),
                SparseMatrixTable::<f32>::create(&tables, (3 * ROWS, COLS), None, true, free()).unwrap(),
                MatrixTable::<f32>::create(&tables, (3 * ROWS, COLS), None, rounds).unwrap(),
                MatrixTable::<i32>::create(
                    &tables,
                    (3 * ROWS, COLS),
                    None,
                    options(Consistency::Ssp { bound: 2 }),
                )
                .unwrap(),
                KeyValueTable::create(&tables, KeyType::Int, COLS, DType::F32, free()).unwrap(),
                KeyValueTable::create(&tables, KeyType::Bytes, COLS, DType::F32, free()).unwrap(),
                CustomTable::create(&tables, "counter", Counter, Bytes, Consistency::Async).unwrap(),
            );
            let rank = Rank {
                rank: world.rank(),
                registry: tables.inner.registry.clone(),
                transport: world.group().transport().clone(),
                context: world.group().context(),
                honest,
            };
            out.send(rank).unwrap();
            // Returns when the test has ended.
            let _ = ended.lock().map(|ended| ended.recv());
            drop(made);
        });
    });
    let mut ranks: Vec<Rank> = (0..3).map(|_| came.recv().unwrap()).collect();
    ranks.sort_by_key(|rank| rank.rank);
    Scene { ranks, threads, _end: end }
}

impl Scene {
    fn end(self) {
        let Scene { ranks, threads, _end } = self;
        drop((ranks, _end));
        threads.join().unwrap();
    }
}

/// Requests that rank 1 may send to rank 0, one of each kind for each table.
fn requests(registry: &Arc<Registry>) -> Vec<Vec<u8>> {
    let delta = |count: usize| vec![1_u8; 4 * count];
    let mut all = Vec::new();
    for table in registry.live_tables() {
        let mut push = |verb, rows: RowList, payload: Vec<u8>, packed: bool| {
            let mut request = RemoteRequest::new(table.number, 1, verb);
            (request.rows, request.payload, request.packed) = (rows, payload, packed);
            request.options = AddOptions::default().to_bytes().to_vec();
            all.push(request.encode(all.len() as u64));
        };
        let rows = || RowList::List(vec![0, 2]);
        let packed = |count| {
            Packer::new(DType::F32, COLS, Compression::F16).pack(RowIds::From(0), delta(count)).0.into_owned()
        };
        match table.description.kind {
            TableKind::Array | TableKind::Matrix | TableKind::SparseMatrix => {
                // Each of the three hosts holds a third of the rows.
                let local = table.description.rows / 3 * table.description.row_bytes() / 4;
                push(RequestVerb::Get, RowList::All, Vec::new(), false);
                push(RequestVerb::Get, rows(), Vec::new(), false);
                push(RequestVerb::Add, RowList::All, delta(local), false);
                push(RequestVerb::Add, rows(), delta(2 * COLS), false);
                push(RequestVerb::Add, rows(), packed(2 * COLS), true);
                push(RequestVerb::GetChanged { buffer: 1 }, rows(), vec![0; 16], false);
            }
            TableKind::KeyValue => {
                let one_key = |keys: RowList| {
                    let mut request = RemoteRequest::new(table.number, 1, RequestVerb::KeyContains);
                    request.rows = keys;
                    registry.clone().admit(1, request).and_then(|admitted| admitted.run()).is_ok()
                };
                let texts = (b'a'..=b'z').map(|letter| vec![letter]);
                let texts: Vec<Vec<u8>> =
                    texts.filter(|key| one_key(RowList::Keys(vec![key.clone()]))).take(2).collect();
                let keys = if texts.is_empty() { RowList::List(vec![0, 3]) } else { RowList::Keys(texts) };
                assert!(one_key(keys.clone()));
                push(RequestVerb::KeyGet, keys.clone(), Vec::new(), false);
                push(RequestVerb::KeyAdd, keys.clone(), delta(2 * COLS), false);
                push(RequestVerb::KeyContains, keys.clone(), Vec::new(), false);
                push(RequestVerb::KeyDelete, keys, Vec::new(), false);
                push(RequestVerb::KeyEvicted, RowList::All, Vec::new(), false);
                push(RequestVerb::KeyLength, RowList::All, Vec::new(), false);
                push(RequestVerb::KeyItems, RowList::All, Vec::new(), false);
            }
            TableKind::Custom => {
                push(RequestVerb::CUSTOM_GET, RowList::List(vec![0, 4]), vec![1; 4], false);
                push(RequestVerb::CUSTOM_ADD, RowList::List(vec![0, 4]), vec![1; 4], false);
            }
        }
        for verb in [RequestVerb::Tick, RequestVerb::EnterCall] {
            push(verb, RowList::All, 1_u64.to_ne_bytes().to_vec(), false);
        }
        for verb in [RequestVerb::LeaveCall, RequestVerb::Steps, RequestVerb::GetDone, RequestVerb::Finish] {
            push(verb, RowList::All, Vec::new(), false);
        }
    }
    all
}

/// The contents that any worker may read at any time.
fn contents(registry: &Arc<Registry>) -> Vec<Vec<u8>> {
    let free = |table: &Arc<dyn OpenTable>| table.description.consistency == Consistency::Async;
    let read = |table: Arc<dyn OpenTable>| {
        let verb = match table.description.kind {
            TableKind::KeyValue => RequestVerb::KeyItems,
            TableKind::Custom => RequestVerb::Steps,
            _ => RequestVerb::Get,
        };
        registry.clone().admit(0, RemoteRequest::new(table.number, 0, verb)).unwrap().run().unwrap()
    };
    registry.live_tables().into_iter().filter(free).map(read).collect()
}

/// Well-formed but invalid requests: an error, after which the tables are unchanged.
#[test]
fn forged_requests() {
    let scene = start();
    let registry = &scene.ranks[0].registry;
    let good = requests(registry);
    let open_to_all = |verb| {
        matches!(
            verb,
            RequestVerb::KeyContains
                | RequestVerb::KeyLength
                | RequestVerb::KeyItems
                | RequestVerb::KeyDelete
                | RequestVerb::KeyEvicted
        )
    };
    for bytes in &good {
        let (_, request) = RemoteRequest::decode(bytes.clone()).unwrap();
        let admit = |from| registry.clone().admit(from, request.clone());
        assert_eq!(admit(2).is_ok(), open_to_all(request.verb), "{request:?}");
        assert!(admit(1).unwrap().ready().unwrap(), "{request:?}");
    }
    let tables = Mutex::new((registry.clone(), contents(registry)));
    fuzz!(|script: &[u8]| {
        let Ok((_, mut request)) = RemoteRequest::decode(mutate(&good, script)) else { return };
        if script.len() % 2 == 1 {
            request.pieces = script.iter().take(2).map(|length| vec![1; usize::from(*length)]).collect();
        }
        let mut tables = tables.lock().unwrap_or_else(PoisonError::into_inner);
        let (registry, held) = &mut *tables;
        let outcome =
            registry.clone().admit(1, request.clone()).and_then(|admitted| match admitted.ready()? {
                true => admitted.run(),
                false => admitted.check().map(|()| Vec::new()),
            });
        let now = contents(registry);
        if let Err(error) = outcome {
            assert!(*held == now, "{error}\n{request:?}");
        }
        *held = now;
    });
    drop(tables);
    scene.end();
}

/// Bytes sent to a server, whose thread must survive them and continue to serve other ranks.
#[test]
fn forged_messages_to_a_server() {
    let scene = start();
    let mut good = requests(&scene.ranks[0].registry);
    let mut piece = RemoteRequest::new(0, 1, RequestVerb::Piece);
    piece.payload = vec![1; 40];
    good.push(piece.encode(3));
    // A shutdown message, a withdrawal and a confirmation.
    good.extend([vec![1], [vec![2], vec![0; 8]].concat(), [vec![3], vec![0; 16]].concat()]);
    let scene = Mutex::new(scene);
    fuzz!(|script: &[u8]| {
        let scene = scene.lock().unwrap_or_else(PoisonError::into_inner);
        let [_, forger, honest] = &scene.ranks[..] else { unreachable!("there are three") };
        let signature = Signature::new(crate::transport::Verb::SEND, 0);
        let match_key = MatchKey { context: forger.context, tag: MatchKey::REQUEST, signature };
        let call = call(1, "forge");
        forger.transport.post(&call, 0, &match_key, mutate(&good, script)).unwrap();
        // Releases what the server holds for this rank.
        forger.transport.post(&call, 0, &match_key, vec![1]).unwrap();
        honest.honest.get(&mut [0.0; 30]).unwrap();
    });
    scene.into_inner().unwrap().end();
}
