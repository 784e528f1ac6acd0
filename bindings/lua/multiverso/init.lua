--- Multiverso's names for the module unisono, for programs written for Multiverso; all names of unisono work too.

local unisono = require 'unisono'

--- Wraps a class for Multiverso programs, some of which write `New`.
local function handler(class)
    local named = setmetatable({ New = class.new }, { __index = class })
    named.__index = named
    return named
end

local multiverso = setmetatable({
    ArrayTableHandler = handler(unisono.ArrayTable),
    MatrixTableHandler = handler(unisono.MatrixTable),
    num_workers = unisono.workers,
    num_servers = unisono.servers,
    util = require 'multiverso.util',
}, { __index = unisono })

--- Joins the other processes.
-- @param sync true: tables work in rounds, and every get sees the same adds of all workers
function multiverso.init(sync)
    -- As in the original, a row that an add lists twice gets two steps.
    local settings = { repeats = 'each' }
    if type(sync) == 'table' then
        for name, value in pairs(sync) do settings[name] = value end
    elseif sync then
        settings.consistency = 'bsp'
    end
    unisono.init(settings)
end

return multiverso
