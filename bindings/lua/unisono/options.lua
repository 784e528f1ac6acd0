--- Options by name: from a Lua table to the library's form.

local ffi = require 'ffi'
local border = require 'unisono.border'

local options = {}

--- What tables have that say nothing themselves.
local defaults = {}

--- Sets the options of all tables that are made from here on.
function options.set_defaults(settings)
    defaults = settings
end

--- Makes the library's form; nil where nothing is set.
local function make(settings)
    if next(settings) == nil then return nil end
    local place = ffi.new 'unisono_options[1]'
    border.check(border.library.unisono_options_new(place))
    local made = border.handle(place[0], border.library.unisono_options_free)
    for name, value in pairs(settings) do
        if type(name) ~= 'string' then
            border.raise('options: expected a table such as {updater = "sgd"}, received the key ' .. tostring(name))
        elseif type(value) == 'string' then
            border.check(border.library.unisono_options_set_text(made[0], name, value))
        elseif type(value) == 'number' then
            border.check(border.library.unisono_options_set_number(made[0], name, value))
        elseif type(value) == 'boolean' then
            border.check(border.library.unisono_options_set_number(made[0], name, value and 1 or 0))
        else
            border.raise('options: expected a text or a number for ' .. name .. ', received a ' .. type(value))
        end
    end
    return made
end

local function check(settings)
    if settings ~= nil and type(settings) ~= 'table' then
        border.raise('options: expected a table such as {updater = "sgd"}, received a ' .. type(settings))
    end
end

--- The options of a table, with the defaults where it says nothing.
function options.for_table(settings)
    check(settings)
    local all = {}
    for name, value in pairs(defaults) do all[name] = value end
    for name, value in pairs(settings or {}) do all[name] = value end
    return make(all)
end

--- The options of an add.
function options.for_add(settings)
    check(settings)
    return make(settings or {})
end

return options
