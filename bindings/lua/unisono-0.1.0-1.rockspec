-- The Lua modules as a rock; the C library is installed before, with `make install`. In the root of the repository:
--     luarocks --lua-version 5.1 make bindings/lua/unisono-0.1.0-1.rockspec UNISONO_DIR=/usr/local

rockspec_format = '3.0'
package = 'unisono'
version = '0.1.0-1'
source = {
    url = 'git+https://example.org/unisono/source',
    tag = 'v0.1.0',
}
description = {
    summary = 'Arrays and matrices shared by many processes, for LuaJIT',
    detailed = [[
        Parameter tables for distributed training, over the C library libunisono; with and without torch.
        The module multiverso has the names of the original Multiverso's Lua binding.
    ]],
    homepage = 'https://example.org/unisono',
    issues_url = 'https://example.org/unisono/issues',
    license = 'MIT OR Apache-2.0',
    labels = { 'distributed', 'machine-learning', 'mpi', 'torch' },
}
supported_platforms = { 'linux' }
-- LuaJIT, which counts as Lua 5.1.
dependencies = { 'lua == 5.1' }
external_dependencies = {
    UNISONO = { header = 'unisono.h', library = 'unisono' },
}
build = {
    type = 'builtin',
    modules = {
        ['multiverso'] = 'bindings/lua/multiverso/init.lua',
        ['multiverso.util'] = 'bindings/lua/multiverso/util.lua',
        ['unisono'] = 'bindings/lua/unisono/init.lua',
        ['unisono.ArrayTable'] = 'bindings/lua/unisono/ArrayTable.lua',
        ['unisono.MatrixTable'] = 'bindings/lua/unisono/MatrixTable.lua',
        ['unisono.declarations'] = 'bindings/lua/unisono/declarations.lua',
        ['unisono.library'] = 'bindings/lua/unisono/library.lua',
        ['unisono.native'] = 'bindings/lua/unisono/native.lua',
        ['unisono.numbers'] = 'bindings/lua/unisono/numbers.lua',
        ['unisono.options'] = 'bindings/lua/unisono/options.lua',
        ['unisono.shared'] = 'bindings/lua/unisono/shared.lua',
    },
}
