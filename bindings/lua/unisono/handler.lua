--- What arrays and matrices have in common.

local ffi = require 'ffi'
local border = require 'unisono.border'
local numbers = require 'unisono.numbers'
local options = require 'unisono.options'

local handler = {}

--- A size that a user wrote.
function handler.check_size(size, what)
    if type(size) ~= 'number' or size < 1 or size % 1 ~= 0 then
        border.raise(('%s: expected a whole number from 1, received %s'):format(what, tostring(size)))
    end
end

--- Makes a table: `make` gets the first values, the options and the place for the handle, and returns a status.
function handler.create(init_value, count, settings, make)
    if type(init_value) == 'number' then
        local more = { init = init_value }
        for name, value in pairs(settings or {}) do more[name] = value end
        init_value, settings = nil, more
    end
    local chosen = options.for_table(settings)
    local first, held
    if init_value ~= nil then
        local length
        first, length, held = numbers.read(init_value, numbers.float, count)
        if length ~= count then
            border.raise(('init_value: expected %d numbers, received %d'):format(count, length))
        end
    end
    local place = ffi.new 'unisono_table[1]'
    border.check(make(first, chosen and chosen[0] or 0, place))
    return border.handle(place[0], border.library.unisono_table_free), held
end

--- Row ids, which count from 0: the array, how many there are, and what must be held; nil for the whole table.
local function rows(row_ids)
    if row_ids == nil then return nil, 0 end
    return numbers.read(row_ids, numbers.id)
end

--- The values of these rows, or of all.
function handler.get(self, row_ids, num_row, num_col)
    local ids, id_count, held = rows(row_ids)
    local result, place, count = numbers.room(ids and id_count or num_row, num_col)
    border.check(border.library.unisono_table_get(self.handle[0], ids, id_count, place, count))
    return result, held
end

--- Adds data to these rows, or to all. With `sync` it returns when that is done, else perhaps before.
function handler.add(self, data, row_ids, sync, settings)
    local ids, id_count, ids_held = rows(row_ids)
    if data == nil then border.raise 'add: expected data, received nil' end
    local array, count, held = numbers.read(data, numbers.float, ids and id_count * self.num_col or self.count)
    local chosen = options.for_add(settings)
    local add = sync and border.library.unisono_table_add or border.library.unisono_table_add_soon
    border.check(add(self.handle[0], ids, id_count, array, count, chosen and chosen[0] or 0))
    return held, ids_held, chosen
end

--- Says that this worker begins its next step, for consistency "ssp:n" and "average".
function handler.tick(self)
    border.check(border.library.unisono_table_tick(self.handle[0]))
end

--- How many steps this worker has made, also in the process before it if it was started again: where a loop goes on.
function handler.clock(self)
    local steps = ffi.new 'uint64_t[1]'
    border.check(border.library.unisono_table_clock(self.handle[0], steps))
    return tonumber(steps[0])
end

--- How old the values were that gets returned: entry i counts those at which the slowest worker was i - 1 steps behind.
function handler.staleness(self)
    local count = ffi.new 'size_t[1]'
    local histogram = ffi.new('uint64_t[?]', 1024)
    border.check(border.library.unisono_table_staleness(self.handle[0], histogram, 1024, count))
    local result = {}
    for i = 1, tonumber(count[0]) do result[i] = tonumber(histogram[i - 1]) end
    return result
end

return handler
