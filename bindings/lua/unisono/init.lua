--- Unisono for LuaJIT: tables that many processes share.
--
--     local unisono = require 'unisono'
--     unisono.init()
--     local weights = unisono.ArrayTable:new(100)
--     weights:add(gradient)
--     unisono.barrier()
--     local values = weights:get()
--     unisono.shutdown()

local ffi = require 'ffi'
local border = require 'unisono.border'
local options = require 'unisono.options'

local unisono = {
    ArrayTable = require 'unisono.ArrayTable',
    MatrixTable = require 'unisono.MatrixTable',
}

--- Joins the world that the launcher of this process has started; alone without a launcher.
-- @param settings a table of what there is to say: role ("both", "worker", "server", "none"), timeout (seconds), and options
--     for all tables that say nothing else, such as {consistency = "bsp", updater = "sgd"}
function unisono.init(settings)
    if settings ~= nil and type(settings) ~= 'table' then
        border.raise('init: expected a table such as {consistency = "bsp"}, received a ' .. type(settings))
    end
    local role, timeout, for_tables = nil, nil, {}
    for name, value in pairs(settings or {}) do
        if name == 'role' then role = value elseif name == 'timeout' then timeout = value else for_tables[name] = value end
    end
    border.check(border.library.unisono_init(timeout or 0))
    -- A second call finds everything done.
    if border.library.unisono_workers(ffi.new 'int32_t[1]') ~= 0 then
        border.check(border.library.unisono_tables_join(role or 'both'))
    end
    options.set_defaults(for_tables)
end

--- Leaves the world, when all work is done; what was added is applied first.
function unisono.shutdown()
    border.check(border.library.unisono_shutdown())
end

--- Waits for everybody; what any of them added before is applied afterwards.
function unisono.barrier()
    border.check(border.library.unisono_barrier(0))
end

--- Waits until all that this process added is applied.
function unisono.flush()
    border.check(border.library.unisono_flush())
end

--- Says that this worker makes no more calls on its tables, so that the others need not wait for it; table:finish() does it
--- for one.
function unisono.finish()
    border.check(border.library.unisono_finish())
end

--- Writes all tables to a folder, or where the library was built with the feature `cloud` to an address such as
--- s3://bucket/name. Every process calls it.
function unisono.save(target)
    border.check(border.library.unisono_save(target))
end

--- Reads all tables from what `save` wrote. Every process calls it, when all tables are made.
function unisono.load(target)
    border.check(border.library.unisono_load(target))
end

--- A fact that the library writes to a number.
local function fact(name)
    return function()
        local place = ffi.new('int32_t[1]')
        border.check(border.library[name](place))
        return place[0]
    end
end

--- This process's rank, how many there are, and its part in the tables; ids count from 0, and -1 is none.
unisono.rank = fact 'unisono_rank'
unisono.size = fact 'unisono_size'
unisono.workers = fact 'unisono_workers'
unisono.servers = fact 'unisono_servers'
unisono.worker_id = fact 'unisono_worker_id'
unisono.server_id = fact 'unisono_server_id'

return unisono
