--- Unisono for LuaJIT: tables that many processes share.
--
--     local unisono = require 'unisono'
--     unisono.init()
--     local weights = unisono.ArrayTable:new(100)
--     weights:add(gradient)
--     unisono.barrier()
--     local values = weights:get()
--     unisono.shutdown()

local has_ffi, ffi = pcall(require, 'ffi')
if not has_ffi then
    error('unisono: expected LuaJIT, whose module ffi it uses, received ' .. _VERSION .. '; run the program with luajit', 0)
end
local native = require 'unisono.native'
local options = require 'unisono.options'

local unisono = {
    ArrayTable = require 'unisono.ArrayTable',
    MatrixTable = require 'unisono.MatrixTable',
}

--- Joins the world of this process's launcher; without a launcher, a world of one.
-- @param settings a table with role ("both", "worker", "server", "none"), timeout (seconds), and default options for all
--     tables, such as {consistency = "bsp", updater = "sgd"}
function unisono.init(settings)
    if settings ~= nil and type(settings) ~= 'table' then
        native.raise('init: expected a table such as {consistency = "bsp"}, received a ' .. type(settings))
    end
    local role, timeout, for_tables = nil, nil, {}
    for name, value in pairs(settings or {}) do
        if name == 'role' then role = value elseif name == 'timeout' then timeout = value else for_tables[name] = value end
    end
    native.check(native.library.unisono_init(timeout or 0))
    -- On a second call, the tables have already been joined.
    if native.library.unisono_workers(ffi.new 'int32_t[1]') ~= 0 then
        native.check(native.library.unisono_tables_join(role or 'both'))
    end
    options.set_defaults(for_tables)
end

--- Leaves the world after all work is done; adds are applied first.
function unisono.shutdown()
    native.check(native.library.unisono_shutdown())
end

--- Waits for all ranks; when it returns, all earlier adds are applied.
function unisono.barrier()
    native.check(native.library.unisono_barrier(0))
end

--- Waits until all adds of this process are applied.
function unisono.flush()
    native.check(native.library.unisono_flush())
end

--- Declares that this worker makes no further calls on any table, so that the others do not wait for it; table:finish()
--- applies to one table.
function unisono.finish()
    native.check(native.library.unisono_finish())
end

--- Saves all tables to a folder or, if the library was built with the feature `cloud`, to an address such as
--- s3://bucket/name. Every process calls it.
function unisono.save(target)
    native.check(native.library.unisono_save(target))
end

--- Loads all tables from a checkpoint that `save` wrote. Every process calls it, after all tables are created.
function unisono.load(target)
    native.check(native.library.unisono_load(target))
end

--- Returns a function that reads one integer from the library.
local function fact(name)
    return function()
        local place = ffi.new('int32_t[1]')
        native.check(native.library[name](place))
        return place[0]
    end
end

--- The rank and the size of the world, and the worker and server ids; ids count from 0, and -1 means none.
unisono.rank = fact 'unisono_rank'
unisono.size = fact 'unisono_size'
unisono.workers = fact 'unisono_workers'
unisono.servers = fact 'unisono_servers'
unisono.worker_id = fact 'unisono_worker_id'
unisono.server_id = fact 'unisono_server_id'

return unisono
