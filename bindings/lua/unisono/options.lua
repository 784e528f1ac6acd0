--- Converts options from a Lua table to a handle of the library.

local ffi = require 'ffi'
local native = require 'unisono.native'

local options = {}

--- The options of tables that set none themselves.
local defaults = {}

--- Sets the default options of all tables created from now on.
function options.set_defaults(settings)
    defaults = settings
end

--- Creates a handle with these options; nil if there are none.
local function make(settings)
    if next(settings) == nil then return nil end
    local place = ffi.new 'unisono_options[1]'
    native.check(native.library.unisono_options_new(place))
    local made = native.handle(place[0], native.library.unisono_options_free)
    for name, value in pairs(settings) do
        if type(name) ~= 'string' then
            native.raise('options: expected a table such as {updater = "sgd"}, received the key ' .. tostring(name))
        elseif type(value) == 'string' then
            native.check(native.library.unisono_options_set_text(made[0], name, value))
        elseif type(value) == 'number' then
            native.check(native.library.unisono_options_set_number(made[0], name, value))
        elseif type(value) == 'boolean' then
            native.check(native.library.unisono_options_set_number(made[0], name, value and 1 or 0))
        else
            native.raise('options: expected a text or a number for ' .. name .. ', received a ' .. type(value))
        end
    end
    return made
end

local function check(settings)
    if settings ~= nil and type(settings) ~= 'table' then
        native.raise('options: expected a table such as {updater = "sgd"}, received a ' .. type(settings))
    end
end

--- Returns the options of a table, with defaults for those that it does not set.
function options.for_table(settings)
    check(settings)
    local all = {}
    for name, value in pairs(defaults) do all[name] = value end
    for name, value in pairs(settings or {}) do all[name] = value end
    return make(all)
end

--- Returns the options of an add.
function options.for_add(settings)
    check(settings)
    return make(settings or {})
end

return options
