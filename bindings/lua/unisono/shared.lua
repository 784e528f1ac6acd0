--- What arrays and matrices have in common.

local ffi = require 'ffi'
local border = require 'unisono.border'
local numbers = require 'unisono.numbers'
local options = require 'unisono.options'

local shared = {}

--- A size that a user wrote.
function shared.check_size(size, what)
    if type(size) ~= 'number' or size < 1 or size % 1 ~= 0 then
        border.raise(('%s: expected a whole number from 1, received %s'):format(what, tostring(size)))
    end
end

--- Makes a table: `make` gets the first values, the options and the place for the handle, and returns a status.
function shared.create(init, count, settings, make)
    if type(init) == 'number' then
        local more = { init = init }
        for name, value in pairs(settings or {}) do more[name] = value end
        init, settings = nil, more
    end
    local chosen = options.for_table(settings)
    local first, held
    if init ~= nil then
        local length
        first, length, held = numbers.read(init, numbers.float, count)
        if length ~= count then
            border.raise(('init: expected %d numbers, received %d'):format(count, length))
        end
    end
    local place = ffi.new 'unisono_table[1]'
    border.check(make(first, chosen and chosen[0] or 0, place))
    return border.handle(place[0], border.library.unisono_table_free), held
end

--- Row ids, which count from 0: the array, how many there are, and what must be held; nil for the whole table.
local function ids_of(rows)
    if rows == nil then return nil, 0 end
    return numbers.read(rows, numbers.id)
end

--- The values of these rows, or of all, which are so many.
function shared.get(self, rows, all, cols)
    local ids, id_count, held = ids_of(rows)
    local result, place, count = numbers.room(ids and id_count or all, cols)
    border.check(border.library.unisono_table_get(self.handle[0], ids, id_count, place, count))
    return result, held
end

--- Adds delta to these rows, or to all. With `wait` it returns when that is done, else perhaps before.
function shared.add(self, delta, rows, wait, settings)
    local ids, id_count, ids_held = ids_of(rows)
    if delta == nil then border.raise 'add: expected data, received nil' end
    local array, count, held = numbers.read(delta, numbers.float, ids and id_count * self.cols or self.count)
    local chosen = options.for_add(settings)
    local add = wait and border.library.unisono_table_add or border.library.unisono_table_add_soon
    border.check(add(self.handle[0], ids, id_count, array, count, chosen and chosen[0] or 0))
    return held, ids_held, chosen
end

--- Says that this worker begins its next step, for consistency "ssp:n" and "average".
function shared.tick(self)
    border.check(border.library.unisono_table_tick(self.handle[0]))
end

--- How many steps this worker has made, also in the process before it if it was started again: where a loop goes on.
function shared.clock(self)
    local steps = ffi.new 'uint64_t[1]'
    border.check(border.library.unisono_table_clock(self.handle[0], steps))
    return tonumber(steps[0])
end

--- Waits until all adds that this process began on this table are applied.
function shared.flush(self)
    border.check(border.library.unisono_table_flush(self.handle[0]))
end

--- Says that this worker makes no more calls on this table, so that the others need not wait for it there. What it added is
--- applied first.
function shared.finish(self)
    border.check(border.library.unisono_table_finish(self.handle[0]))
end

--- How old the values were that gets returned: entry i counts those at which the slowest worker was i - 1 steps behind.
function shared.staleness(self)
    local count = ffi.new 'size_t[1]'
    local histogram = ffi.new('uint64_t[?]', 1024)
    border.check(border.library.unisono_table_staleness(self.handle[0], histogram, 1024, count))
    local result = {}
    for i = 1, tonumber(count[0]) do result[i] = tonumber(histogram[i - 1]) end
    return result
end

--- A class of tables, with what all of them can do.
function shared.class()
    local class = {
        tick = shared.tick,
        clock = shared.clock,
        flush = shared.flush,
        finish = shared.finish,
        staleness = shared.staleness,
    }
    class.__index = class
    return class
end

return shared
